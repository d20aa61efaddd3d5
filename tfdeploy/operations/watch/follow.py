"""A run followed until it ends: its tasks' states and lines as events, across lost connections."""

from __future__ import annotations

import threading
import time

from tfdeploy.errors import BadAnswer
from tfdeploy.model.events import Emit, Event
from tfdeploy.model.loglines import LogLine
from tfdeploy.model.plan import Plan
from tfdeploy.model.status import RunView
from tfdeploy.operations.tasklogs.task_log import LogQuery
from tfdeploy.operations.watch.carry import Carrier
from tfdeploy.operations.watch.follow_logs import Follower
from tfdeploy.operations.watch.listen import listen
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.transport.protocols import Fleet

ROUND_S = 0.2
SILENT_S = 90.0  # after the others have ended, an unreachable host is waited for this long
LINES_S = 20.0  # the last lines, after the end


def follow(
    fleet: Fleet,
    plan: Plan,
    emit: Emit,
    *,
    stop: threading.Event,
    lines: bool = True,
    last: int | None = None,
    only: frozenset[str] | None = None,
) -> RunView:
    """Returns once the run has ended everywhere, or `stop` is set. It carries words between hosts that are cut from each other.

    `last`: begin with so many lines of each task (None: all). `only`: ask these hosts alone.
    """
    watch = Watch(fleet, plan, emit, only)
    follower = None
    if lines:
        query = LogQuery(tasks=tuple(task.task for task in plan.tasks if task.host in watch.asked), last=last)
        follower = Follower(fleet, plan, query, lambda line: emit(line_event(plan, line)), stop=stop)
        follower.start()
    listen(watch, stop)
    carrier = Carrier(watch)
    ended_since: float | None = None
    while not stop.wait(ROUND_S):
        if not watch.complete():
            continue
        carrier.look()
        view = watch.view()
        if view.final and not watch.settled():
            continue  # a host may go on with it
        if view.final and follower is not None and not watch.errors:
            follower.join(LINES_S)
        watch.tell(view)
        if view.final and not watch.errors:
            return view
        if view.final:  # only unreachable hosts are missing
            ended_since = ended_since or time.monotonic()
            senseless = all(isinstance(error, BadAnswer) for error in watch.errors.values())  # it will be no wiser
            if senseless or time.monotonic() - ended_since > SILENT_S:
                return view
        else:
            ended_since = None
    return watch.view()


def line_event(plan: Plan, line: LogLine) -> Event:
    data = {"stream": line.stream, "line": line.line.decode("utf-8", "surrogateescape"), "offset": line.offset}
    return Event("line", line.time, plan.run, line.host, line.task, line.attempt, data)
