"""The metrics that one task has printed since the last look, from the end of its log."""

from __future__ import annotations

import os
import re
from math import isfinite

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Mapping, Tuple
from tfdeploy.agent.log.format import LOG
from tfdeploy.agent.metric_lines import keras_step
from tfdeploy.agent.metric_patterns import compile_metrics
from tfdeploy.agent.metric_reader import MetricPatterns, MetricReader

if TYPE_CHECKING:
    from tfdeploy.agent.metric_lines import Patterns

READ_BYTES = 1 << 16  # the newest of what was printed between two looks
ENDED_BYTES = 4 * READ_BYTES  # the same, where an attempt has ended: a long traceback may follow the last step
MOST_LINES = 256  # that are searched at once; only after the end of an attempt, others are searched until there is a step
MOST_METRICS, MOST_NAME_CHARS = 32, 64
MOST_STEPS = 10**13
_ENDS = re.compile(rb"[\n\r\b]")


def compile_all(metrics: Mapping[str, str]) -> MetricPatterns:
    """Compile those of `compile_metrics` whose name is short enough to be shown."""
    return MetricPatterns(compile_metrics({name: text for name, text in metrics.items() if len(name) <= MOST_NAME_CHARS}))


class PrintedMetrics:
    def __init__(self, task_dir: str, patterns: Patterns) -> None:
        self._path, self._reader = os.path.join(task_dir, LOG), MetricReader(patterns)
        self._seen: Tuple[int, int] = (0, 0)  # inode, size
        self.known: Dict[str, float] = {}  # the newest of all that it has printed so far

    def look(self, ended: bool = False) -> Dict[str, float]:
        """Return the newest number of each metric that was printed since the last look.

        `ended`: an attempt has ended since then."""
        lines = self._new_lines(ENDED_BYTES if ended else READ_BYTES)
        found: Dict[str, float] = {}
        for begin in range(0, len(lines) if ended else min(1, len(lines)), MOST_LINES):
            found = dict(self._reader.find(lines[begin : begin + MOST_LINES], _is_possible), **found)
            if "step" in found:
                break
        self._note(found)
        if "step" not in found and "batch" in found:
            step = keras_step(self.known)
            if step is not None:
                found["step"] = self.known["step"] = step
        return {name: value for name, value in found.items() if name in self.known and isfinite(value)}

    def _note(self, found: Mapping[str, float]) -> None:
        for name, value in found.items():
            if len(name) <= MOST_NAME_CHARS and (name in self.known or len(self.known) < MOST_METRICS):
                self.known[name] = value

    @property
    def finite(self) -> Dict[str, float]:
        """Return all known values but NaN and infinity, which JSON does not have."""
        return {name: value for name, value in self.known.items() if isfinite(value)}

    @property
    def stopped(self) -> List[str]:
        """The metrics that are not read any more: to match their patterns takes too long."""
        return self._reader.stopped[:MOST_METRICS]

    def _new_lines(self, most_bytes: int) -> List[str]:
        """The newest first."""
        try:
            with open(self._path, "rb") as log:
                about = os.fstat(log.fileno())
                inode, size = self._seen
                begin = size if inode == about.st_ino and size <= about.st_size else 0
                begin = max(begin, about.st_size - most_bytes)
                log.seek(begin)
                text = log.read(about.st_size - begin)
        except OSError:
            return []
        ends = [found.end() for found in _ENDS.finditer(text)]
        if not ends:
            return []
        self._seen = about.st_ino, begin + ends[-1]  # the rest is read when its line has ended
        lines = text[: ends[-1]].decode("utf-8", "replace").split("\n")
        return [line for line in reversed(lines) if line.strip()]


def _is_possible(name: str, value: float) -> bool:
    return name != "step" or abs(value) <= MOST_STEPS
