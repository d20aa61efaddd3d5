"""Read the metrics that one task has printed since the last call. They are read from the end of the
task's log."""

from __future__ import annotations

import os
import re
import time
from math import isfinite

from tfdeploy.agent.annotations import Dict, List, Mapping, Optional
from tfdeploy.agent.log.format import LOG
from tfdeploy.agent.metric_lines import is_possible_step, keras_step
from tfdeploy.agent.metric_patterns import STEP_COUNTERS
from tfdeploy.agent.metric_reader import MetricPatterns, MetricReader, compile_patterns

# Limits the bytes that one call reads from the end of the log.
READ_BYTES = 1 << 16
# Limits the bytes that one call reads after an attempt has ended. This limit is larger than
# READ_BYTES, because a long traceback may follow the last step in the log.
ENDED_BYTES = 4 * READ_BYTES
# Limits how many lines are searched together. Usually only the newest MOST_LINES lines are
# searched. After an attempt has ended, older lines are searched too, until a step is found.
MOST_LINES = 256
# Limits the number of a task's metrics, and the length of their names.
MOST_METRICS, MOST_NAME_CHARS = 32, 64
_ENDS = re.compile(rb"[\n\r\b]")


def compile_short_named(regex_by_metric: Mapping[str, str]) -> MetricPatterns:
    """Return the compiled patterns of the metrics whose names have at most MOST_NAME_CHARS
    characters."""
    return compile_patterns(
        {name: text for name, text in regex_by_metric.items() if len(name) <= MOST_NAME_CHARS}
    )


class PrintedMetrics:
    """The metrics of one task. `known`: name -> newest value, for all metrics that the task has
    ever printed. `step_times`: name of a step counter -> when it was last printed, in UTC seconds
    by this host's clock."""

    def __init__(self, task_dir: str, patterns: MetricPatterns) -> None:
        self._path, self._reader = os.path.join(task_dir, LOG), MetricReader(patterns)
        # Inode of the log, and the offset up to which the log has been read.
        self._inode = self._size = 0
        # `_last`: offset at which the unread part began at the last read. `_began`: offset at which
        # this read began; larger than `_last` if the unread part was too long for one read.
        self._last = self._began = 0
        self._seen: Optional[os.stat_result] = None  # os.stat of the log at the last read
        # If lines were skipped and no step was found after them: the offset from which the log is
        # searched again once the attempt has ended. Otherwise None.
        self._unsearched: Optional[int] = None
        self._new: Dict[str, float] = {}
        self.known: Dict[str, float] = {}
        self.step_times: Dict[str, float] = {}

    def read_new_metrics(self, attempt_ended: bool = False) -> bool:
        """Read what the task has printed since the last call. Return True if this output contains a
        metric.

        `attempt_ended`: True if an attempt has ended since the last call.
        """
        lines = self._read_new_lines_newest_first(attempt_ended)
        metrics: Dict[str, float] = {}
        for begin in range(0, len(lines) if attempt_ended else min(1, len(lines)), MOST_LINES):
            metrics = dict(
                self._reader.find_metrics(lines[begin : begin + MOST_LINES], self._is_possible),
                **metrics,
            )
            if "step" in metrics:
                break
        if "step" in metrics or attempt_ended:
            self._unsearched = None
        elif self._unsearched is None and (len(lines) > MOST_LINES or self._began > self._last):
            self._unsearched = self._last
        self._store(metrics)
        return bool(metrics)

    def take_new_values(self) -> Dict[str, float]:
        """Return name -> newest value, for metrics that were found since the last call of
        `take_new_values`. NaN and infinity are left out."""
        new, self._new = self._new, {}
        return {name: value for name, value in new.items() if isfinite(value)}

    def _store(self, value_by_metric: Dict[str, float]) -> None:
        for name, value in value_by_metric.items():
            if len(name) <= MOST_NAME_CHARS and (
                name in self.known or len(self.known) < MOST_METRICS
            ):
                self.known[name] = self._new[name] = value
        if "step" not in value_by_metric and "batch" in value_by_metric:
            step = keras_step(self.known)
            if step is not None:
                value_by_metric["step"] = self.known["step"] = self._new["step"] = step
        # These lines were written at about the time when the log was last modified.
        if self._seen is not None:
            counted = [name for name in STEP_COUNTERS if name in value_by_metric]
            self.step_times.update(dict.fromkeys(counted, self._seen.st_mtime))

    @property
    def finite(self) -> Dict[str, float]:
        """Return all known values that are not NaN or infinity, because JSON cannot represent those
        two."""
        return {name: value for name, value in self.known.items() if isfinite(value)}

    @property
    def not_finite(self) -> Dict[str, str]:
        """Return the known values that are NaN or infinity. They are returned as text, so that they
        can be shown."""
        return {name: str(value) for name, value in self.known.items() if not isfinite(value)}

    @property
    def stopped(self) -> List[str]:
        """Return the metrics that are no longer read, because their patterns took too long to
        match."""
        return self._reader.stopped_metrics[:MOST_METRICS]

    def _read_new_lines_newest_first(self, task_has_ended: bool) -> List[str]:
        """Return the new complete lines. The newest line comes first."""
        try:
            about = os.stat(self._path)
            if not task_has_ended and self._is_unchanged(about):
                return []
            with open(self._path, "rb") as log:
                self._seen = about = os.fstat(log.fileno())
                same = self._inode == about.st_ino and self._size <= about.st_size
                if not same:
                    self._size, self._unsearched = 0, None
                unsearched = self._unsearched if task_has_ended else None
                self._last = self._size if unsearched is None else unsearched
                most_bytes = ENDED_BYTES if task_has_ended else READ_BYTES
                begin = self._began = max(self._last, about.st_size - most_bytes)
                log.seek(begin)
                text = log.read(about.st_size - begin)
        except OSError:
            return []
        ends = [match.end() for match in _ENDS.finditer(text)]
        if not ends:
            return []
        # If the last line is not complete, a later call will read it.
        self._inode, self._size = about.st_ino, begin + ends[-1]
        lines = text[: ends[-1]].decode("utf-8", "replace").split("\n")
        return [line for line in reversed(lines) if line.strip()]

    def _is_unchanged(self, file_stat: os.stat_result) -> bool:
        before = self._seen
        return before is not None and (before.st_ino, before.st_size) == (
            file_stat.st_ino,
            file_stat.st_size,
        )

    def _is_possible(self, name: str, value: float) -> bool:
        if name not in STEP_COUNTERS:
            return True
        passed_s = time.time() - self.step_times.get(name, 0.0)
        return is_possible_step(value, self.known.get(name), passed_s)
