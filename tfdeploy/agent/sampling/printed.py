"""Read the metrics that one task has printed since the last call, from the end of its log."""

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

READ_BYTES = 1 << 16  # the newest of what was printed between two looks
# the same, where an attempt has ended: a long traceback may follow the last step
ENDED_BYTES = 4 * READ_BYTES
# that are searched at once; only after the end of an attempt, others are searched until there is a
# step
MOST_LINES = 256
MOST_METRICS, MOST_NAME_CHARS = 32, 64
_ENDS = re.compile(rb"[\n\r\b]")


def compile_all(metrics: Mapping[str, str]) -> MetricPatterns:
    """Compile those of `compile_patterns` whose name is short enough to be shown."""
    return compile_patterns(
        {name: text for name, text in metrics.items() if len(name) <= MOST_NAME_CHARS}
    )


class PrintedMetrics:
    """The metrics of one task. `known`: the newest of all that it has printed so far. `step_times`:
    when each step counter was printed last, in UTC seconds of this host."""

    def __init__(self, task_dir: str, patterns: Mapping[str, re.Pattern[str]]) -> None:
        self._path, self._reader = os.path.join(task_dir, LOG), MetricReader(patterns)
        self._inode = self._size = 0  # of the log, up to where it has been read
        self._last = self._began = 0  # where the last look should have begun, and where it did
        self._seen: Optional[os.stat_result] = None  # of the log at the last look
        # Since this offset no step was found, and some lines were not searched.
        self._unsearched: Optional[int] = None
        self._new: Dict[str, float] = {}
        self.known: Dict[str, float] = {}
        self.step_times: Dict[str, float] = {}

    def read_new(self, ended: bool = False) -> bool:
        """Read what was printed since the last call. Return True if a metric was found.

        `ended`: an attempt has ended since then.
        """
        lines = self._new_lines(ended)
        metrics: Dict[str, float] = {}
        for begin in range(0, len(lines) if ended else min(1, len(lines)), MOST_LINES):
            metrics = dict(
                self._reader.find(lines[begin : begin + MOST_LINES], self._is_possible), **metrics
            )
            if "step" in metrics:
                break
        if "step" in metrics or ended:
            self._unsearched = None
        elif self._unsearched is None and (len(lines) > MOST_LINES or self._began > self._last):
            self._unsearched = self._last
        self._store(metrics)
        return bool(metrics)

    def take_new(self) -> Dict[str, float]:
        """Return the newest number of each metric that was found since the last call, without NaN
        and infinity."""
        new, self._new = self._new, {}
        return {name: value for name, value in new.items() if isfinite(value)}

    def _store(self, metrics: Dict[str, float]) -> None:
        for name, value in metrics.items():
            if len(name) <= MOST_NAME_CHARS and (
                name in self.known or len(self.known) < MOST_METRICS
            ):
                self.known[name] = self._new[name] = value
        if "step" not in metrics and "batch" in metrics:
            step = keras_step(self.known)
            if step is not None:
                metrics["step"] = self.known["step"] = self._new["step"] = step
        if self._seen is not None:  # the last line was written then, and these stood near it
            counted = [name for name in STEP_COUNTERS if name in metrics]
            self.step_times.update(dict.fromkeys(counted, self._seen.st_mtime))

    @property
    def finite(self) -> Dict[str, float]:
        """Return all known values except NaN and infinity, which JSON does not have."""
        return {name: value for name, value in self.known.items() if isfinite(value)}

    @property
    def not_finite(self) -> Dict[str, str]:
        """Return the others as text: a loss that is no longer a number is shown as it is."""
        return {name: str(value) for name, value in self.known.items() if not isfinite(value)}

    @property
    def stopped(self) -> List[str]:
        """Return the metrics that are not read any more, because matching their patterns takes too
        long."""
        return self._reader.stopped[:MOST_METRICS]

    def _new_lines(self, ended: bool) -> List[str]:
        """Return the new lines, the newest first."""
        try:
            about = os.stat(self._path)
            if not ended and self._is_seen(about):
                return []
            with open(self._path, "rb") as log:
                self._seen = about = os.fstat(log.fileno())
                same = self._inode == about.st_ino and self._size <= about.st_size
                if not same:
                    self._size, self._unsearched = 0, None
                unsearched = self._unsearched if ended else None
                self._last = self._size if unsearched is None else unsearched
                most_bytes = ENDED_BYTES if ended else READ_BYTES
                begin = self._began = max(self._last, about.st_size - most_bytes)
                log.seek(begin)
                text = log.read(about.st_size - begin)
        except OSError:
            return []
        ends = [match.end() for match in _ENDS.finditer(text)]
        if not ends:
            return []
        # What follows the last end is read when its line has ended.
        self._inode, self._size = about.st_ino, begin + ends[-1]
        lines = text[: ends[-1]].decode("utf-8", "replace").split("\n")
        return [line for line in reversed(lines) if line.strip()]

    def _is_seen(self, about: os.stat_result) -> bool:
        seen = self._seen
        return seen is not None and (seen.st_ino, seen.st_size) == (about.st_ino, about.st_size)

    def _is_possible(self, name: str, value: float) -> bool:
        if name not in STEP_COUNTERS:
            return True
        passed_s = time.time() - self.step_times.get(name, 0.0)
        return is_possible_step(value, self.known.get(name), passed_s)
