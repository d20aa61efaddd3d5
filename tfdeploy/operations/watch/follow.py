"""Follow the state of a run and the lines of its tasks until it ends, across lost connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tfdeploy.errors import BadAnswer
from tfdeploy.model.events import Emit
from tfdeploy.model.loglines import LogLine
from tfdeploy.model.plan import Plan
from tfdeploy.model.status.run_status import RunView
from tfdeploy.operations.tasklogs.task_log import LogQuery
from tfdeploy.operations.watch.follow_logs import LogFollower
from tfdeploy.operations.watch.listen import start_listening
from tfdeploy.operations.watch.relay import EndRelay
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.transport.protocols import Fleet

POLL_S = 0.2
# When the run has ended on all other hosts, wait this many seconds for an unreachable host.
SILENT_S = 90.0
LINES_S = 20.0  # after the end of the run, wait this many seconds for the last lines


def follow(
    fleet: Fleet,
    plan: Plan,
    emit: Emit,
    *,
    stop: threading.Event,
    take_lines: Callable[[list[LogLine]], None] | None = None,
    last: int | None = None,
    only_hosts: frozenset[str] | None = None,
) -> RunView:
    """Follow the run until it has ended on all hosts, or `stop` is set. Return its last state.

    Changes of the state are emitted as events. If a host does not know that the run has ended, this
    machine tells the host. `take_lines` is called from several threads; the lines of one call
    belong to one task and have the same time. If `take_lines` is None, no lines are read. `last`:
    the number of stored lines of each task with which to begin; None means all. `only_hosts`: ask
    only these hosts.
    """
    watch = Watch(fleet, plan, emit, only_hosts)
    follower = None
    if take_lines is not None:
        query = LogQuery(
            tasks=tuple(task.task for task in plan.tasks if task.host in watch.watched), last=last
        )
        follower = LogFollower(fleet, plan, query, take_lines, stop=stop)
        follower.start()
    start_listening(watch, stop)
    end_relay = EndRelay(watch)
    ended_since: float | None = None
    while not stop.wait(POLL_S):
        if not watch.all_answered_or_unreachable():
            continue
        end_relay.tell_hosts_if_due()
        view = watch.view()
        if view.is_final and not watch.all_reports_ended():
            # Do not report the end yet: the run may still be resumed on one of the hosts.
            continue
        if view.is_final and follower is not None and not watch.errors:
            follower.join(LINES_S)
        watch.emit_run_if_changed(view)
        if not view.is_final:
            ended_since = None
            continue
        ended_since = ended_since or time.monotonic()
        # There is no need to wait for a host whose answer was invalid, because it would send the
        # same answer again. An unreachable host may still answer.
        invalid = all(isinstance(error, BadAnswer) for error in watch.errors.values())
        if invalid or time.monotonic() - ended_since > SILENT_S:
            return view
    return watch.view()
