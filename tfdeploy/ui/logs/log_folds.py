"""Fold equal lines of several tasks into one, `worker:[0-7]@n[1-8] | line`, for `logs --fold`.

A line is held back for at most WINDOW_S seconds to wait for equal lines of other tasks. The memory
of waiting lines is bounded. The lines of each task keep their order.
"""

from __future__ import annotations

from collections import deque

from tfdeploy.model.loglines import LogLine
from tfdeploy.text.names import fold_names

# The maximum number of seconds for which a line is held back.
WINDOW_S = 0.5
# The maximum number of waiting lines.
MOST_LINES = 5000
# The maximum number of bytes of all waiting lines together.
MOST_BYTES = 4 << 20


class _EqualLines:
    """A group of equal lines, at most one from each task. `number`: the position of this group
    among all groups. `at`: when the first line of the group arrived, in seconds."""

    def __init__(self, number: int, line: LogLine, at: float) -> None:
        self.number, self.line, self.since = number, line, at
        # {task that has written the line: its host}.
        self.hosts: dict[str, str] = {}

    def folded_line(self) -> LogLine:
        if len(self.hosts) == 1:
            return self.line
        return self.line._replace(task=fold_names(self.hosts), host=fold_names(self.hosts.values()))


class LineFolder:
    """Folds equal lines. `tasks`: how many tasks write lines. A group that has a line of each task
    is passed on at once. For the argument `now` of `arrange`, see TracebackBlocks."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._groups: deque[_EqualLines] = deque()
        # {line: the newest group of this line}.
        self._open: dict[bytes, _EqualLines] = {}
        # {task: the number of the group that contains the task's last line}.
        self._latest: dict[str, int] = {}
        self._bytes = self._count = 0

    @property
    def is_holding(self) -> bool:
        return bool(self._groups)

    def arrange(self, lines: list[LogLine], now: float | None) -> list[LogLine]:
        released: list[LogLine] = []
        for line in lines:
            at = line.time if now is None else now
            self._release_complete(at, released)
            group = self._open.get(line.line)
            if (
                group is None
                or line.task in group.hosts
                or self._latest.get(line.task, -1) >= group.number
            ):
                self._count += 1
                group = self._open[line.line] = _EqualLines(self._count, line, at)
                self._groups.append(group)
                self._bytes += len(line.line)
            group.hosts[line.task] = line.host
            self._latest[line.task] = group.number
        self._release_complete(now, released)
        return released

    def release_all(self) -> list[LogLine]:
        released: list[LogLine] = []
        while self._groups:
            self._release_oldest(released)
        return released

    def _release_complete(self, at: float | None, released: list[LogLine]) -> None:
        while self._groups and (
            len(self._groups[0].hosts) >= self._tasks
            or (at is not None and at - self._groups[0].since > WINDOW_S)
            or len(self._groups) > MOST_LINES
            or self._bytes > MOST_BYTES
        ):
            self._release_oldest(released)

    def _release_oldest(self, released: list[LogLine]) -> None:
        group = self._groups.popleft()
        self._bytes -= len(group.line.line)
        if self._open.get(group.line.line) is group:
            del self._open[group.line.line]
        released.append(group.folded_line())
