"""Follow the lines of a run for one reader, in bounded memory (`tfdeploy logs -f`)."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Iterator, Mapping
from queue import Queue

from tfdeploy.errors import TfdeployError
from tfdeploy.machine.threads import start_thread
from tfdeploy.model.loglines import LogLine, lines_of
from tfdeploy.model.plan import Plan
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.operations.tasklogs.line_filter import LineFilter
from tfdeploy.operations.tasklogs.stored_lines import RotatedBytes, last_lines, read_stored_batches
from tfdeploy.operations.tasklogs.task_log import LogQuery, TaskLog
from tfdeploy.operations.watch.follow_logs import LogFollower
from tfdeploy.transport.protocols import Errors, Fleet

# At most this many batches of lines wait for the reader. Meanwhile, the threads that follow the
# logs pause.
QUEUE_BATCHES = 16
# With `--until TIME`, tfdeploy waits until TIME has passed, and then until no line has arrived for
# QUIET_S seconds. It then assumes that all lines up to TIME have arrived.
QUIET_S = 1.0


def follow_lines(
    fleet: Fleet,
    plan: Plan,
    query: LogQuery,
    host_errors: Errors,
    rotated_bytes: RotatedBytes,
) -> Iterator[LogLine]:
    """Yield lines as they are written, until all tasks have ended or `query.until` has passed.

    At the end, the errors of hosts that did not answer are added to `host_errors`. `rotated_bytes`
    receives, for each log, the number of bytes that were rotated away before they were read.
    """
    filters = {task: LineFilter(query, task) for task in query.tasks}
    task_logs: dict[str, TaskLog] = {}
    if query.filters_locally and query.last is not None:
        yield from _read_last_stored_lines(fleet, plan, query, filters, task_logs)
    lines: Queue[list[LogLine] | None] = Queue(QUEUE_BATCHES)  # None marks the end
    stop = threading.Event()
    until = query.until

    def put(batch: list[LogLine]) -> None:
        # Lines after `until` are dropped here. If they were queued, `_wait_for_lines` would wait
        # longer, because it waits until no more batches arrive.
        if until is None or batch[0].time <= until:
            lines.put(batch)

    follower = LogFollower(fleet, plan, query, put, stop=stop, begun_logs=task_logs)

    def wait() -> None:
        _wait_for_lines(follower, lines, until)
        lines.put(None)

    follower.start()
    start_thread(wait, name="log end")
    try:
        while (batch := lines.get()) is not None:
            yield from filters[batch[0].task](batch)
    finally:
        stop.set()
        host_errors.update(follower.host_errors)
        rotated_bytes.update(follower.rotated_bytes)


def _wait_for_lines(
    follower: LogFollower, lines: Queue[list[LogLine] | None], until: float | None
) -> None:
    """Wait until all tasks have ended, or until the lines written before `until` have arrived."""
    if until is None:
        follower.join()
        return
    ended, before = follower.join(max(0.0, until - time.time()) + QUIET_S), (-1, -1)
    while not ended and (
        before != (now := (lines.unfinished_tasks, lines.qsize())) or lines.full()
    ):
        before = now  # (number of batches queued so far, number of batches still in the queue)
        ended = follower.join(QUIET_S)


def _read_last_stored_lines(
    fleet: Fleet,
    plan: Plan,
    query: LogQuery,
    filters: Mapping[str, LineFilter],
    task_logs: dict[str, TaskLog],
) -> Iterator[LogLine]:
    """Yield the last lines that hosts have stored and that match the query, merged by time.

    `task_logs` receives {task: its log}, so that the log can be followed from the end of these
    lines. Hosts that do not answer are skipped, because the follower asks them again.
    """
    tasks = [task for task in plan.tasks if task.task in query.tasks]
    sessions = fleet.connect(hosts_of(plan, {task.host for task in tasks}))
    blocks: list[list[list[LogLine]]] = []
    for task in tasks:
        session, log = sessions[task.host], TaskLog(plan, task.task, task.host, query)
        if isinstance(session, TfdeployError):
            continue
        try:
            blocks.append(
                last_lines(
                    map(filters[task.task], map(lines_of, read_stored_batches(log, session))),
                    query.last or 0,
                )
            )
            task_logs[task.task] = log
        except TfdeployError:
            filters[task.task].reset()
    for batch in heapq.merge(
        *([batch for batch in batches if batch] for batches in blocks),
        key=lambda batch: batch[0].time,
    ):
        yield from batch
