"""The metrics that one task has printed since the last look, from the end of its log."""

from __future__ import annotations

import os
import re

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Mapping, Tuple
from tfdeploy.agent.log.format import LOG
from tfdeploy.agent.metric_lines import keras_step
from tfdeploy.agent.metric_reader import MetricPatterns, MetricReader

if TYPE_CHECKING:
    from tfdeploy.agent.metric_lines import Patterns

READ_BYTES = 1 << 16  # the newest of what was printed between two looks
MOST_LINES = 256
MOST_METRICS, MOST_NAME_CHARS = 32, 64
MOST_STEPS = 10**13
_ENDS = re.compile(rb"[\n\r\b]")


def compile_all(metrics: Mapping[str, str]) -> MetricPatterns:
    """Those that compile and have a group; the others are left out."""
    found = {}
    for name, text in metrics.items():
        try:
            pattern = re.compile(text)
        except (re.error, OverflowError, RecursionError):
            continue
        if pattern.groups and len(name) <= MOST_NAME_CHARS:
            found[name] = pattern
    return MetricPatterns(found)


class PrintedMetrics:
    def __init__(self, task_dir: str, patterns: Patterns) -> None:
        self._path, self._reader = os.path.join(task_dir, LOG), MetricReader(patterns)
        self._seen: Tuple[int, int] = (0, 0)  # inode, size
        self._known: Dict[str, float] = {}  # for the step of Keras

    def look(self) -> Dict[str, float]:
        """The newest number of each metric; without those that were not printed since the last look."""
        lines = self._new_lines()
        found = self._reader.find(lines, lambda name, value: name != "step" or abs(value) <= MOST_STEPS) if lines else {}
        self._known.update(found)
        if "step" not in found and "batch" in found:
            step = keras_step(self._known)
            if step is not None:
                found["step"] = step
        names = [name for name in found if len(name) <= MOST_NAME_CHARS][:MOST_METRICS]
        return {name: found[name] for name in names}

    @property
    def stopped(self) -> List[str]:
        """The metrics that are not read any more: to match their patterns takes too long."""
        return self._reader.stopped[:MOST_METRICS]

    def _new_lines(self) -> List[str]:
        """The newest first."""
        try:
            with open(self._path, "rb") as log:
                about = os.fstat(log.fileno())
                inode, size = self._seen
                begin = size if inode == about.st_ino and size <= about.st_size else 0
                begin = max(begin, about.st_size - READ_BYTES)
                log.seek(begin)
                text = log.read(about.st_size - begin)
        except OSError:
            return []
        ends = [found.end() for found in _ENDS.finditer(text)]
        if not ends:
            return []
        self._seen = about.st_ino, begin + ends[-1]  # the rest is read when its line has ended
        lines = text[: ends[-1]].decode("utf-8", "replace").split("\n")
        return [line for line in lines[-MOST_LINES:] if line.strip()][::-1]
