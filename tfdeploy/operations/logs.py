"""`tfdeploy logs`: the merged lines of a run, read from the hosts where they lie.

Every task is pulled in pieces, so that memory stays bounded however slow the reader is; finished logs are merged
by time, followed ones come as they are written.
"""

from __future__ import annotations

import heapq
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.model.inventory import Host
from tfdeploy.model.loglines import LogLine
from tfdeploy.model.plan import Plan
from tfdeploy.operations.find import hosts_of
from tfdeploy.operations.lines import LineSplitter
from tfdeploy.transport.seam import AgentChannel, Fleet, Session

PULL_BYTES = 1 << 20
RECONNECT_S = (1.0, 1.0, 2.0, 3.0)  # and 3 s from then on


@dataclass(frozen=True)
class LogQuery:
    """What is wanted. `since`: UTC seconds; `last`: lines per task."""

    tasks: tuple[str, ...]
    since: float | None = None
    last: int | None = None
    grep: re.Pattern[bytes] | None = None


class TaskLog:
    """The log of one task, pulled piece by piece from where the last piece ended."""

    def __init__(self, plan: Plan, task: str, host: str, query: LogQuery) -> None:
        self.plan, self.task, self.query = plan, task, query
        self.splitter = LineSplitter(task, host)
        self.cursor: int | None = None  # None: nothing read yet
        self.ended = False
        self.gone_bytes = 0
        self.surplus = 0

    def pull(self, agent: AgentChannel, *, follow: bool) -> Iterator[LogLine]:
        """The lines of the next piece; none when there is nothing more (then `ended` is set, unless followed)."""
        args: dict[str, Any] = {"run": self.plan.run, "job": self.plan.job, "tasks": [self.task], "follow": follow}
        args["limit_bytes"] = PULL_BYTES
        if self.cursor is not None:
            args["cursors"] = {self.task: self.cursor}
        elif self.query.last is not None:
            args["last"] = self.query.last
        elif self.query.since is not None:
            args["since"] = self.query.since
        stream = agent.stream("logs", args)
        moved = False
        try:
            for item, blob in stream:
                moved = True
                self.gone_bytes += item.get("gone") or 0
                self.cursor = item["offset"] + len(blob)
                yield from self.splitter.feed(item["offset"], item["records"], blob)
        finally:
            stream.close()
        if not moved or (follow and stream.value.get("ended")):
            self.ended = True
            yield from self.splitter.rest()

    def wanted(self, lines: Iterator[LogLine]) -> Iterator[LogLine]:
        since, grep = self.query.since, self.query.grep
        for line in lines:
            if since is not None and line.time < since:
                continue
            if grep is not None and not grep.search(line.line):
                continue
            yield line


def stored_lines(fleet: Fleet, plan: Plan, query: LogQuery, lost: dict[str, TfdeployError]) -> Iterator[LogLine]:
    """All lines that are there now, merged by time. Hosts without an answer are put into `lost`."""
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
        readers.append(_whole(TaskLog(plan, task.task, task.host, query), session, lost))
    return heapq.merge(*readers, key=lambda line: line.time)


def _whole(log: TaskLog, session: Session, lost: dict[str, TfdeployError]) -> Iterator[LogLine]:
    lines = log.wanted(_pieces(log, session, lost))
    if log.query.last is not None:
        kept: list[LogLine] = []
        for line in lines:
            kept.append(line)
            if len(kept) > 2 * log.query.last:
                del kept[: -log.query.last]
        lines = iter(kept[-log.query.last :] if log.query.last else [])
    latest = 0.0
    for line in lines:  # one task's lines keep their order, whatever its clock did
        latest = max(latest, line.time)
        yield line if line.time == latest else line._replace(time=latest)


def _pieces(log: TaskLog, session: Session, lost: dict[str, TfdeployError]) -> Iterator[LogLine]:
    try:
        while not log.ended:
            yield from log.pull(session.agent(), follow=False)
    except TfdeployError as error:
        lost[session.host.name] = error
        yield from log.splitter.rest()


class Follower:
    """Live lines of many tasks, handed to one function as they come. One thread per task, reconnecting by cursor."""

    def __init__(
        self, fleet: Fleet, plan: Plan, query: LogQuery, deliver: Callable[[LogLine], None], *, stop: threading.Event
    ) -> None:
        self.fleet, self.plan, self.query, self.deliver, self.stop = fleet, plan, query, deliver, stop
        self.lost: dict[str, TfdeployError] = {}
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
        failures = 0
        while not self.stop.is_set() and not log.ended:
            try:
                session = self.fleet.connect((host,))[host.name]
                if isinstance(session, TfdeployError):
                    raise session
                for line in log.wanted(log.pull(session.agent(), follow=True)):
                    self.deliver(line)
                failures = 0
                self.lost.pop(host.name, None)
            except HostUnreachable as error:
                self.lost[host.name] = error
                failures += 1
                self.stop.wait(RECONNECT_S[min(failures, len(RECONNECT_S)) - 1])
            except TfdeployError as error:
                self.lost[host.name] = error
                return


def followed_lines(fleet: Fleet, plan: Plan, query: LogQuery, lost: dict[str, TfdeployError]) -> Iterator[LogLine]:
    """Lines as they are written, until all tasks have ended. The queue is bounded: a slow reader slows the pulling."""
    lines: queue.Queue[LogLine | None] = queue.Queue(maxsize=20_000)
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
