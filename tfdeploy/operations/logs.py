"""`tfdeploy logs -f`: the lines of a run as they are written, for one reader, in bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from tfdeploy.errors import TfdeployError
from tfdeploy.model.loglines import LogLine
from tfdeploy.model.plan import Plan
from tfdeploy.operations.tasklogs.stored_lines import Gone
from tfdeploy.operations.tasklogs.task_log import LogQuery
from tfdeploy.operations.watch.follow_logs import Follower
from tfdeploy.transport.protocols import Fleet

QUEUE_BYTES = 4 << 20  # of lines that are followed and not yet read
LINE_BYTES = 200  # counted for a line besides its text


class _LineQueue:
    """A bounded queue from the pulling threads to the reader. A slow reader slows the pulling. None: the end."""

    def __init__(self) -> None:
        self._lines: deque[LogLine | None] = deque()
        self._bytes = 0
        self._changed = threading.Condition()

    def put(self, line: LogLine | None) -> None:
        with self._changed:
            while self._bytes > QUEUE_BYTES:
                self._changed.wait()
            self._lines.append(line)
            self._bytes += _size_bytes(line)
            self._changed.notify_all()

    def get(self) -> LogLine | None:
        with self._changed:
            while not self._lines:
                self._changed.wait()
            line = self._lines.popleft()
            before, self._bytes = self._bytes, self._bytes - _size_bytes(line)
            if before > QUEUE_BYTES >= self._bytes:
                self._changed.notify_all()
            return line


def _size_bytes(line: LogLine | None) -> int:
    return 0 if line is None else len(line.line) + LINE_BYTES


def followed_lines(
    fleet: Fleet, plan: Plan, query: LogQuery, lost: dict[str, TfdeployError], gone: Gone | None = None
) -> Iterator[LogLine]:
    """Lines as they are written, until all tasks have ended. `lost`, `gone`: as in stored_lines, filled at the end."""
    lines = _LineQueue()
    stop = threading.Event()
    follower = Follower(fleet, plan, query, lines.put, stop=stop)

    def wait() -> None:
        follower.join()
        lines.put(None)

    follower.start()
    threading.Thread(target=wait, daemon=True, name="log end").start()
    try:
        while True:
            line = lines.get()
            if line is None:
                break
            yield line
    finally:
        stop.set()
        lost.update(follower.lost)
        if gone is not None:
            gone.update(follower.gone)
