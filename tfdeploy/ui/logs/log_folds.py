"""Print equal lines of several tasks as one: `worker:[0-7]@n[1-8] | line`. For `logs --fold`.

A line waits for equal lines of other tasks for WINDOW_S, and up to a size. Each task's lines stay
in their order.
"""

from __future__ import annotations

from collections import deque

from tfdeploy.model.loglines import LogLine
from tfdeploy.model.text.folding import fold_names

WINDOW_S = 0.5
MOST_LINES = 5000
MOST_BYTES = 4 << 20


class _Group:
    """Equal lines, one of each task. `number`: its position among all groups."""

    def __init__(self, number: int, line: LogLine, at: float) -> None:
        self.number, self.line, self.since = number, line, at
        self.hosts: dict[str, str] = {}  # task -> its host

    def folded(self) -> LogLine:
        if len(self.hosts) == 1:
            return self.line
        return self.line._replace(task=fold_names(self.hosts), host=fold_names(self.hosts.values()))


class Folds:
    """Lines in, folded lines out. `tasks`: how many tasks may print the same. `now`: as in
    TracebackBlocks."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._groups: deque[_Group] = deque()
        self._open: dict[bytes, _Group] = {}  # the newest group of a line
        self._latest: dict[str, int] = {}  # task -> the number of the group of its last line
        self._bytes = self._count = 0

    @property
    def holding(self) -> bool:
        return bool(self._groups)

    def arrange(self, lines: list[LogLine], now: float | None) -> list[LogLine]:
        out: list[LogLine] = []
        for line in lines:
            at = line.time if now is None else now
            self._release(at, out)
            group = self._open.get(line.line)
            if (
                group is None
                or line.task in group.hosts
                or self._latest.get(line.task, -1) >= group.number
            ):
                self._count += 1
                group = self._open[line.line] = _Group(self._count, line, at)
                self._groups.append(group)
                self._bytes += len(line.line)
            group.hosts[line.task] = line.host
            self._latest[line.task] = group.number
        self._release(now, out)
        return out

    def rest(self) -> list[LogLine]:
        out: list[LogLine] = []
        while self._groups:
            self._pop(out)
        return out

    def _release(self, at: float | None, out: list[LogLine]) -> None:
        while self._groups and (
            len(self._groups[0].hosts) >= self._tasks
            or (at is not None and at - self._groups[0].since > WINDOW_S)
            or len(self._groups) > MOST_LINES
            or self._bytes > MOST_BYTES
        ):
            self._pop(out)

    def _pop(self, out: list[LogLine]) -> None:
        group = self._groups.popleft()
        self._bytes -= len(group.line.line)
        if self._open.get(group.line.line) is group:
            del self._open[group.line.line]
        out.append(group.folded())
