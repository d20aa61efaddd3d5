"""Read the lines of a run that its hosts have stored, merged by time.

Every log is read in pieces, so that the memory in use stays bounded even if the reader is slow.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import chain

from tfdeploy.errors import BadAnswer, HostUnreachable, TfdeployError
from tfdeploy.model.loglines import Batch, LogLine, lines_of, time_of, with_time
from tfdeploy.model.plan import Plan
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.operations.tasklogs.fetched_logs import FetchedLogs
from tfdeploy.operations.tasklogs.line_filter import filter_batches
from tfdeploy.operations.tasklogs.task_log import PULL_BYTES, LogQuery, TaskLog
from tfdeploy.transport.protocols import Errors, Fleet, Session

# A host may send this many bytes more than the size limit of a log, because the log may rotate or
# grow while it is read.
SLACK_BYTES = 64 << 20
# {"task@host": how many bytes of its log were rotated away before they could be read}
RotatedBytes = dict[str, int]


def stored_lines(
    fleet: Fleet,
    plan: Plan,
    query: LogQuery,
    host_errors: Errors,
    fetched: FetchedLogs | None = None,
) -> Iterator[LogLine]:
    """Yield the lines of `stored_batches` one by one."""
    return chain.from_iterable(
        map(lines_of, stored_batches(fleet, plan, query, host_errors, {}, fetched))
    )


def stored_batches(
    fleet: Fleet,
    plan: Plan,
    query: LogQuery,
    host_errors: Errors,
    rotated_bytes: RotatedBytes,
    fetched: FetchedLogs | None,
) -> Iterator[Batch]:
    """Yield all lines that the hosts have stored, merged by time.

    Adds the errors of hosts that do not answer to `host_errors`. Hosts that are already in
    `host_errors` are not asked. If a host does not answer or no longer has the run, the log in
    `fetched` is read instead, and the host is removed from `host_errors`. `rotated_bytes` receives,
    for each log, the number of bytes that were rotated away before they were read.
    """
    tasks = [task for task in plan.tasks if task.task in query.tasks]
    sessions = {
        **fleet.connect(hosts_of(plan, {task.host for task in tasks} - host_errors.keys())),
        **host_errors,
    }
    readers = []
    for task in tasks:
        log = TaskLog(plan, task.task, task.host, query)
        batches = _read_whole_log(log, sessions[task.host], host_errors, fetched)
        readers.append(_wanted_batches_in_order(log, batches, rotated_bytes))
    return heapq.merge(*readers, key=time_of)


def _wanted_batches_in_order(
    log: TaskLog, batches: Iterator[Batch], rotated_bytes: RotatedBytes
) -> Iterator[Batch]:
    """Yield one task's wanted lines, in the order of time.

    If the host's clock was set back, a line may have an earlier time than the line before it. Such
    a line gets the time of the line before it.
    """
    query, wanted = log.query, batches
    if query.filters_locally or query.since is not None or query.last is not None:
        lists = filter_batches(query, log.task, map(lines_of, batches))
        wanted = iter(lists if query.last is None else last_lines(lists, query.last))
    latest = 0.0
    for batch in wanted:
        if batch:
            latest = max(latest, time_of(batch))
            yield batch if time_of(batch) == latest else with_time(batch, latest)
    record_rotated_bytes(log, rotated_bytes)


def record_rotated_bytes(log: TaskLog, rotated_bytes: RotatedBytes) -> None:
    """Record in `rotated_bytes` how many bytes of the log were rotated away before they could be
    read."""
    if log.rotated_bytes:
        rotated_bytes[f"{log.task}@{log.host}"] = log.rotated_bytes


def last_lines(batches: Iterator[list[LogLine]], count: int) -> list[list[LogLine]]:
    """Return the last `count` lines. Besides these lines, at most one batch is held in memory."""
    last_batches: deque[list[LogLine]] = deque()
    line_count = 0
    for batch in batches:
        last_batches.append(batch)
        line_count += len(batch)
        while line_count - len(last_batches[0]) >= count:
            line_count -= len(last_batches.popleft())
            if not last_batches:
                break
    if last_batches:
        last_batches[0] = last_batches[0][max(0, line_count - count) :]
        if last_batches[0] and not last_batches[0][0].stream:
            # The first line is a separator between two groups, but the group before it was dropped.
            del last_batches[0][0]
    return list(last_batches)


def _read_whole_log(
    log: TaskLog,
    session: Session | TfdeployError,
    host_errors: Errors,
    fetched: FetchedLogs | None,
) -> Iterator[Batch]:
    """Yield all stored lines of one log: from its host, or else from `fetched`.

    A host in `host_errors` is not asked again, because each request to it would time out.
    """
    failed = host_errors.get(log.host) or (
        fetched.replaced_hosts.get(log.host) if fetched is not None else None
    )
    try:
        if isinstance(session, TfdeployError):
            raise session
        if isinstance(failed, (HostUnreachable, BadAnswer)):
            raise failed
        yield from read_stored_batches(log, session)
    except TfdeployError as error:
        copy = (
            fetched.read_fetched_lines(log.task, log.host, error)
            if fetched is not None and log.cursor is None
            else None
        )
        if copy is not None:
            host_errors.pop(log.host, None)
            yield from copy
            return
        host_errors[log.host] = error
    yield from log.splitter.take_unfinished_lines()


def read_stored_batches(log: TaskLog, session: Session) -> Iterator[Batch]:
    """Yield the lines that the host had stored when the first piece was requested.

    While the lines of one piece are yielded, the next piece is already requested. Raises
    TfdeployError.
    """
    agent = session.agent()
    stream, end, read = log.request_piece(agent, follow=False), None, 0
    while parts := list(log.receive_parts(stream)):
        read += sum(len(blob) for _, blob in parts)
        if read > log.plan.logs_max_bytes + SLACK_BYTES:
            raise BadAnswer(
                f"the host sends a larger log of {log.task} than allowed", where=session.host.name
            )
        end = end if end is not None or stream.value is None else stream.value.ends.get(log.task)
        has_more = sum(len(blob) for _, blob in parts) >= PULL_BYTES and (
            end is None or (log.cursor or 0) < end
        )
        if has_more:
            stream = log.request_piece(agent, follow=False)
        for part in parts:
            yield from log.split_part(part)
        if not has_more:
            break
