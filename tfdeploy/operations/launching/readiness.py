"""Wait before the commit of a run until all its tasks are up or a task has failed."""

from __future__ import annotations

import time

from tfdeploy.errors import RunFailed
from tfdeploy.model.events import Emit
from tfdeploy.model.plan import Plan
from tfdeploy.operations.outcomes import combine_errors
from tfdeploy.operations.tasklogs.last_lines import last_lines
from tfdeploy.operations.watch.failure_advice import failure_advice
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.transport.protocols import Fleet

POLL_S = 0.2
# The hosts enforce `ready.timeout` themselves. This machine waits this many seconds longer, so that
# their reports arrive in time.
SLACK_S = 30.0
# Seconds to wait after the first report that a task died. Another task may have died earlier, and
# the report of its death may still be on the way.
SETTLE_S = 5.0


def wait_until_tasks_up(fleet: Fleet, plan: Plan, emit: Emit) -> None:
    """Wait until all tasks are up or have ended successfully.

    Raises RunFailed, with the last lines of the task that failed first. Raises the error of a host
    that cannot be asked.
    """
    watch = Watch(fleet, plan, emit)
    deadline = time.monotonic() + plan.ready_timeout_s + SLACK_S
    while True:
        view = watch.poll_and_emit_run()
        if watch.errors:
            raise combine_errors("waiting for the tasks", watch.errors, len(plan.hosts))
        if view.is_final or any(state is None for state in watch.states.values()):
            raise first_death_error(fleet, plan, watch)
        # Until the launch confirms the run on all hosts (the commit), a run ends early only if a
        # task fails, an operator ends the run, or the launch does not renew the run in time.
        if any(state.phase in ("ending", "ended") for state in watch.known_states):
            wait_for_successful_end(fleet, plan, emit)
        waiting = [task.task for task in plan.tasks if not _is_up(watch, task.task)]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise RunFailed(
                f"{', '.join(waiting)} not up after {plan.ready_timeout_s:g} s",
                next="raise ready.timeout, or see `tfdeploy logs`",
            )
        time.sleep(POLL_S)


def wait_for_successful_end(fleet: Fleet, plan: Plan, emit: Emit) -> None:
    """Wait until all hosts report the end of a run. Raise RunFailed unless the run succeeded.

    Call this when the run has begun to end. Once the cause of a failure is known, the function
    waits only SETTLE_S more seconds, even if some hosts have not reported the end yet. The launch
    then rolls the run back, which ends it on these hosts too.
    """
    watch = Watch(fleet, plan, emit)
    deadline = time.monotonic() + plan.stop_grace_s + SLACK_S
    while not (view := watch.poll_and_emit_run()).is_final and time.monotonic() < deadline:
        if view.cause is not None:
            deadline = min(deadline, time.monotonic() + SETTLE_S)
        time.sleep(POLL_S)
    if view.state != "succeeded":
        raise first_death_error(fleet, plan, watch)


def _is_up(watch: Watch, task: str) -> bool:
    """Return whether the task counts as up.

    A run succeeds when its deciding tasks (usually the chief) succeed. The hosts then stop the
    other tasks, so a stopped task of such a run counts as up. In any other run, a stopped task does
    not count as up, because the run was aborted.
    """
    status = watch.tasks.get(task)
    decided = any("decided" in state.marks for state in watch.known_states)
    return status is not None and (status.up or (decided and status.outcome == "stopped"))


def first_death_error(fleet: Fleet, plan: Plan, watch: Watch) -> RunFailed:
    """Return an error about the task that died first, with the last lines that it printed."""
    view = watch.view()
    task = view.first_death
    if task is None:
        aborted = [
            (state.abort_reason, state.host) for state in watch.known_states if state.abort_reason
        ]
        why, where = (
            aborted[0] if aborted else ("the run was ended before all tasks were up", plan.run)
        )
        return RunFailed(why, where=where)
    host = next((planned.host for planned in plan.tasks if planned.task == task), "?")
    lines = last_lines(fleet, plan, task)
    shown = "".join(f"\n    {line}" for line in lines)
    undone = (
        f"that was before the run counted as up (ready.after: {plan.ready_after_s:g}s), so the "
        "launch was undone"
    )
    return RunFailed(
        f"{view.cause}; {undone}"
        + (f"; its last lines:{shown}" if lines else " (it printed nothing)"),
        where=f"{task}@{host}",
        next=f"`tfdeploy logs {plan.run} --task {task}`"
        + failure_advice(plan, task, view.cause or ""),
    )
