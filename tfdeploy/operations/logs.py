"""`tfdeploy logs -f`: the lines of a run as they are written, for one reader, in bounded memory."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping

from tfdeploy.errors import TfdeployError
from tfdeploy.model.loglines import LogLine, lines_of
from tfdeploy.model.plan import Plan
from tfdeploy.operations.find_run import hosts_of
from tfdeploy.operations.tasklogs.line_filter import LineFilter
from tfdeploy.operations.tasklogs.stored_lines import Gone, last_lines, stored_pieces
from tfdeploy.operations.tasklogs.task_log import LogQuery, TaskLog
from tfdeploy.operations.watch.follow_logs import Follower
from tfdeploy.transport.protocols import Fleet

QUEUE_BYTES = 4 << 20  # of lines that are followed and not yet read
LINE_BYTES = 200  # counted for a line besides its text
QUIET_S = 1.0  # after --until: so long without a line, and all that were written by then have come


class _LineQueue:
    """A bounded queue from the pulling threads to the reader. A slow reader slows the pulling. None: the end."""

    def __init__(self) -> None:
        self._lines: deque[LogLine | None] = deque()
        self._bytes = 0
        self.passed = 0  # lines that came or went
        self._changed = threading.Condition()

    @property
    def full(self) -> bool:
        return self._bytes > QUEUE_BYTES

    def put(self, line: LogLine | None) -> None:
        with self._changed:
            while self._bytes > QUEUE_BYTES:
                self._changed.wait()
            self._lines.append(line)
            self.passed += 1
            self._bytes += _size_bytes(line)
            self._changed.notify_all()

    def get(self) -> LogLine | None:
        with self._changed:
            while not self._lines:
                self._changed.wait()
            line = self._lines.popleft()
            self.passed += 1
            before, self._bytes = self._bytes, self._bytes - _size_bytes(line)
            if before > QUEUE_BYTES >= self._bytes:
                self._changed.notify_all()
            return line


def _size_bytes(line: LogLine | None) -> int:
    return 0 if line is None else len(line.line) + LINE_BYTES


def followed_lines(
    fleet: Fleet, plan: Plan, query: LogQuery, lost: dict[str, TfdeployError], gone: Gone | None = None
) -> Iterator[LogLine]:
    """Lines as they are written, until all tasks have ended, or `query.until`. `lost`, `gone`: as in stored_lines, filled at
    the end."""
    filters = {task: LineFilter(query, task) for task in query.tasks} if query.drops or query.since is not None else None
    begun: dict[str, TaskLog] = {}
    if filters is not None and query.drops and query.last is not None:
        yield from _last_stored(fleet, plan, query, filters, begun)
    lines = _LineQueue()
    stop = threading.Event()
    until = query.until

    def put(batch: list[LogLine]) -> None:
        if until is None or batch[0].time <= until:  # lines after it are no sign that others before it may still come
            for line in batch:
                lines.put(line)

    follower = Follower(fleet, plan, query, put, stop=stop, begun=begun)

    def wait() -> None:
        _join(follower, lines, until)
        lines.put(None)

    follower.start()
    threading.Thread(target=wait, daemon=True, name="log end").start()
    try:
        while True:
            line = lines.get()
            if line is None:
                break
            if filters is None:
                yield line
            else:
                yield from filters[line.task]([line])
    finally:
        stop.set()
        lost.update(follower.lost)
        if gone is not None:
            gone.update(follower.gone)


def _join(follower: Follower, lines: _LineQueue, until: float | None) -> None:
    """Waits for the end of all tasks, or until the lines written by then have come."""
    if until is None:
        follower.join()
        return
    ended, passed = follower.join(max(0.0, until - time.time()) + QUIET_S), -1
    while not ended and (passed != lines.passed or lines.full):
        passed = lines.passed
        ended = follower.join(QUIET_S)


def _last_stored(
    fleet: Fleet, plan: Plan, query: LogQuery, filters: Mapping[str, LineFilter], begun: dict[str, TaskLog]
) -> Iterator[LogLine]:
    """The last wanted lines of those that are stored, merged by time; `begun` gets the logs, to be followed from there on.

    Hosts without an answer are passed over: the follower asks them again.
    """
    tasks = [task for task in plan.tasks if task.task in query.tasks]
    sessions = fleet.connect(hosts_of(plan, {task.host for task in tasks}))
    found: list[list[list[LogLine]]] = []
    for task in tasks:
        session, log = sessions[task.host], TaskLog(plan, task.task, task.host, query)
        if isinstance(session, TfdeployError):
            continue
        try:
            found.append(last_lines(map(filters[task.task], map(lines_of, stored_pieces(log, session))), query.last or 0))
            begun[task.task] = log
        except TfdeployError:
            filters[task.task].forget()
    for batch in heapq.merge(*([batch for batch in batches if batch] for batches in found), key=lambda batch: batch[0].time):
        yield from batch
