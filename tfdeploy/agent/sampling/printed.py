"""Read the metrics that one task has printed since the last call, at the end of its log."""

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

# One call reads at most this many bytes, from the end of the log.
READ_BYTES = 1 << 16
# After an attempt has ended, one call reads at most this many bytes. They are more than READ_BYTES,
# because a long traceback may follow the last step in the log.
ENDED_BYTES = 4 * READ_BYTES
# At most this many lines are searched together. Usually only the newest MOST_LINES lines are
# searched. After an attempt has ended, older lines are searched too, until a step is found.
MOST_LINES = 256
# A task has at most MOST_METRICS metrics. Metrics with longer names than MOST_NAME_CHARS characters
# are ignored.
MOST_METRICS, MOST_NAME_CHARS = 32, 64
_ENDS = re.compile(rb"[\n\r\b]")


def compile_short_named(regex_by_metric: Mapping[str, str]) -> MetricPatterns:
    """Return the compiled patterns of those metrics whose names have at most MOST_NAME_CHARS
    characters."""
    return compile_patterns(
        {name: text for name, text in regex_by_metric.items() if len(name) <= MOST_NAME_CHARS}
    )


class PrintedMetrics:
    """The metrics that one task has printed.

    `known`: {name: newest value} of all metrics that the task has ever printed.
    `step_times`: {name of a step counter: when it was last printed}, in UTC seconds by this host's
    clock.
    """

    def __init__(self, task_dir: str, patterns: MetricPatterns) -> None:
        self._path, self._reader = os.path.join(task_dir, LOG), MetricReader(patterns)
        # The inode of the log, and the offset up to which the log has been read.
        self._inode = self._size = 0
        # `_last`: the offset at which the unread part of the log began before the last read.
        # `_began`: the offset at which that read began. It is larger than `_last` if the unread
        # part was too long for one read.
        self._last = self._began = 0
        self._seen: Optional[os.stat_result] = (
            None  # the result of os.fstat for the log at the last read
        )
        # None, or the offset from which the log is searched again when the attempt has ended. It is
        # set if lines were skipped and no step has been found in the lines after them.
        self._unsearched: Optional[int] = None
        self._new: Dict[str, float] = {}
        self.known: Dict[str, float] = {}
        self.step_times: Dict[str, float] = {}

    def read_new_metrics(self, attempt_ended: bool = False) -> bool:
        """Read what the task has printed since the last call. Return True if this output contains a
        metric. `attempt_ended`: True if an attempt has ended since the last call."""
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
        """Return {name: newest value} of the metrics that were found since the last call of
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
        # The lines have no times of their own. They were written at about the time when the log was
        # last modified.
        if self._seen is not None:
            counted = [name for name in STEP_COUNTERS if name in value_by_metric]
            self.step_times.update(dict.fromkeys(counted, self._seen.st_mtime))

    @property
    def finite(self) -> Dict[str, float]:
        """Return the known values except NaN and infinity, which JSON cannot represent."""
        return {name: value for name, value in self.known.items() if isfinite(value)}

    @property
    def not_finite(self) -> Dict[str, str]:
        """Return those known values that are NaN or infinity. They are returned as text, because
        JSON cannot represent them as numbers."""
        return {name: str(value) for name, value in self.known.items() if not isfinite(value)}

    @property
    def stopped(self) -> List[str]:
        """Return the names of the metrics that are no longer read, because matching their patterns
        took too long."""
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
        # The last line may not be complete. It is then read by a later call.
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
