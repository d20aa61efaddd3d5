"""`tfdeploy logs`: the merged lines of a run, read from the hosts where they lie.

Every task is pulled in pieces, so that memory stays bounded however slow the reader is; finished logs are merged
by time, followed ones come as they are written.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

from tfdeploy.errors import AgentError, BadAnswer, HostUnreachable, TfdeployError
from tfdeploy.model.inventory import Host
from tfdeploy.model.loglines import LogLine
from tfdeploy.model.plan import Plan
from tfdeploy.operations.find_run import hosts_of
from tfdeploy.operations.tasklogs.task_log import PULL_BYTES, LogQuery, TaskLog
from tfdeploy.operations.watch.resume import resume_patiently
from tfdeploy.transport.protocols import Fleet, Session

RECONNECT_S = 0.5  # a try that meets silence takes 10 s by itself
WAITING_BYTES = 4 << 20  # of lines that are followed and not yet read
SLACK_BYTES = 64 << 20  # a log may rotate, and grow, while it is read
LINE_BYTES = 200  # what a line weighs besides its text
Gone = dict[str, int]  # "task@host" -> bytes of its log that were rotated away before they could be read


def stored_lines(
    fleet: Fleet, plan: Plan, query: LogQuery, lost: dict[str, TfdeployError], gone: Gone | None = None
) -> Iterator[LogLine]:
    """All lines that are there now, merged by time. Hosts without an answer are put into `lost`, and what is no longer
    there into `gone`."""
    hosts = {host.name: host for host in hosts_of(plan)}
    needed = tuple(hosts[name] for name in dict.fromkeys(task.host for task in plan.tasks if task.task in query.tasks))
    sessions = fleet.connect(needed)
    readers = []
    for task in plan.tasks:
        session = sessions.get(task.host)
        if task.task not in query.tasks or session is None:
            continue
        if isinstance(session, TfdeployError):
            lost[task.host] = session
            continue
        readers.append(_whole(TaskLog(plan, task.task, task.host, query), session, lost, {} if gone is None else gone))
    merged = heapq.merge(*readers, key=lambda batch: batch[0].time)
    return chain.from_iterable(merged)


def _whole(log: TaskLog, session: Session, lost: dict[str, TfdeployError], gone: Gone) -> Iterator[list[LogLine]]:
    """One task's lines, together as long as they share their time; in their order, whatever the clock did."""
    batches = _pieces(log, session, lost)
    if log.query.last is not None:
        batches = iter(last_lines(batches, log.query.last))
    latest = 0.0
    for batch in batches:
        if batch:
            latest = max(latest, batch[0].time)
            yield batch if batch[0].time == latest else [line._replace(time=latest) for line in batch]
    _count(log, session.host.name, gone)


def _count(log: TaskLog, host: str, gone: Gone) -> None:
    if log.gone_bytes:
        gone[f"{log.task}@{host}"] = log.gone_bytes


def last_lines(batches: Iterator[list[LogLine]], count: int) -> list[list[LogLine]]:
    """So many lines of the end; never much more than that is held."""
    kept: deque[list[LogLine]] = deque()
    held = 0
    for batch in batches:
        kept.append(batch)
        held += len(batch)
        while held - len(kept[0]) >= count:
            held -= len(kept.popleft())
            if not kept:
                break
    if kept:
        kept[0] = kept[0][max(0, held - count) :]
    return list(kept)


def _pieces(log: TaskLog, session: Session, lost: dict[str, TfdeployError]) -> Iterator[list[LogLine]]:
    """What was there when it was first asked for. While a piece is read the next one is on its way. A host that was lost is
    not asked for its other logs: each would cost the same silence."""
    if isinstance(lost.get(session.host.name), (HostUnreachable, BadAnswer)):
        return
    try:
        agent = session.agent()
        stream, end, read = log.ask(agent, follow=False), None, 0
        while parts := list(log.take(stream)):
            read += sum(len(blob) for _, blob in parts)
            if read > log.plan.logs_max_bytes + SLACK_BYTES:
                raise BadAnswer(f"the log of {log.task} is longer than a log can be", where=session.host.name)
            end = end if end is not None or stream.value is None else stream.value.ends.get(log.task)
            more = sum(len(blob) for _, blob in parts) >= PULL_BYTES and (end is None or (log.cursor or 0) < end)
            if more:
                stream = log.ask(agent, follow=False)
            for part in parts:
                yield from log.lines(part)
            if not more:
                break
    except TfdeployError as error:
        lost[session.host.name] = error
    yield from log.rest()


class Follower:
    """Live lines of many tasks, handed to one function as they come. One thread per task, reconnecting by cursor."""

    def __init__(
        self, fleet: Fleet, plan: Plan, query: LogQuery, deliver: Callable[[LogLine], None], *, stop: threading.Event
    ) -> None:
        self.fleet, self.plan, self.query, self.deliver, self.stop = fleet, plan, query, deliver, stop
        self.lost: dict[str, TfdeployError] = {}
        self.gone: Gone = {}
        hosts = {host.name: host for host in hosts_of(plan)}
        self.threads = [
            threading.Thread(target=self._follow, args=(task.task, hosts[task.host]), daemon=True, name=f"log {task.task}")
            for task in plan.tasks
            if task.task in query.tasks
        ]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def join(self, timeout_s: float | None = None) -> bool:
        """True once every task has ended and all its lines are delivered."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self.threads:
            while thread.is_alive() and not self.stop.is_set():
                left = 0.2 if deadline is None else min(0.2, deadline - time.monotonic())
                if left <= 0:
                    return False
                thread.join(left)
        return not any(thread.is_alive() for thread in self.threads)

    def _follow(self, task: str, host: Host) -> None:
        log = TaskLog(self.plan, task, host.name, self.query)
        heard = False
        while not self.stop.is_set() and not log.ended:
            try:
                session = self.fleet.connect((host,))[host.name]
                if isinstance(session, TfdeployError):
                    raise session
                agent = session.agent()
                agent.hurry()
                heard = True
                for line in chain.from_iterable(log.pull(agent)):
                    self.deliver(line)
                self.lost.pop(host.name, None)
                if log.left and not resume_patiently(self.fleet, self.plan, host.name, _say_nothing, self.stop):
                    for line in chain.from_iterable(log.rest()):
                        self.deliver(line)
                    return
                if log.left:
                    self.stop.wait(RECONNECT_S)
                _count(log, host.name, self.gone)
            except TfdeployError as error:
                self.lost[host.name] = error
                heard = heard or isinstance(error, HostUnreachable)  # a host that was heard before may only be busy, or booting
                if isinstance(error, (AgentError, BadAnswer)) or not heard or not host.address:
                    return
                self.stop.wait(RECONNECT_S)


def _say_nothing(text: str) -> None:
    return None


class _Waiting:
    """Lines between those that pull them and the one that reads them. Bounded: a slow reader slows the pulling."""

    def __init__(self) -> None:
        self._lines: deque[LogLine | None] = deque()
        self._bytes = 0
        self._changed = threading.Condition()

    def put(self, line: LogLine | None) -> None:
        with self._changed:
            while self._bytes > WAITING_BYTES:
                self._changed.wait()
            self._lines.append(line)
            self._bytes += _weight(line)
            self._changed.notify_all()

    def get(self) -> LogLine | None:
        with self._changed:
            while not self._lines:
                self._changed.wait()
            line = self._lines.popleft()
            before, self._bytes = self._bytes, self._bytes - _weight(line)
            if before > WAITING_BYTES >= self._bytes:
                self._changed.notify_all()
            return line


def _weight(line: LogLine | None) -> int:
    return 0 if line is None else len(line.line) + LINE_BYTES


def followed_lines(
    fleet: Fleet, plan: Plan, query: LogQuery, lost: dict[str, TfdeployError], gone: Gone | None = None
) -> Iterator[LogLine]:
    """Lines as they are written, until all tasks have ended. `lost`, `gone`: as of stored_lines, once all is over."""
    lines = _Waiting()
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
