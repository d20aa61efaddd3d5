"""The wait between start and commit: until every task is up, or the first one that will not be."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tfdeploy.agent import wire
from tfdeploy.errors import RunFailed, TfdeployError
from tfdeploy.model.events import Emit
from tfdeploy.model.plan import Plan
from tfdeploy.model.words import death_in_words
from tfdeploy.operations.lastwords import last_lines
from tfdeploy.operations.outcomes import all_or_error, together
from tfdeploy.operations.verbs import ask_all
from tfdeploy.operations.watching import Watch
from tfdeploy.transport.seam import Fleet

ROUND_S = 0.2
REFRESH_S = 15.0  # start is said again: hosts that hear nothing for 60 s end what has no commit
SLACK_S = 30.0  # beyond ready.timeout, which the hosts themselves keep


def await_up(fleet: Fleet, plan: Plan, emit: Emit) -> None:
    """Returns once all tasks are up or have ended well. Raises RunFailed with the task's last lines,
    or the error of a host that cannot be reached."""
    watch = Watch(fleet, plan, emit)
    deadline = time.monotonic() + plan.ready_timeout_s + SLACK_S
    refreshed = time.monotonic()
    while True:
        view = watch.look()
        if watch.errors:
            raise together("waiting for the tasks", watch.errors, len(plan.hosts))
        if view.state in ("failed", "stopped", "lost") or any(state is None for state in watch.states.values()):
            raise failure(fleet, plan, watch)
        waiting = [task.task for task in plan.tasks if not _is_up(watch, task.task)]
        if not waiting:
            return
        now = time.monotonic()
        if now > deadline:
            raise RunFailed(
                f"{', '.join(waiting)} not up after {plan.ready_timeout_s:g} s",
                next="raise ready.timeout, or see `tfdeploy logs`",
            )
        if now - refreshed > REFRESH_S:
            refreshed = now
            all_or_error("start", ask_all(fleet, plan, "run.start"))
        time.sleep(ROUND_S)


def check(fleet: Fleet, plan: Plan, emit: Emit) -> None:
    """For a run that has ended somewhere already: raises RunFailed if that was not well, once it is over everywhere."""
    watch = Watch(fleet, plan, emit)
    deadline = time.monotonic() + plan.stop_grace_s + SLACK_S
    while True:
        view = watch.look()
        if view.state in ("failed", "stopped", "lost"):
            raise failure(fleet, plan, watch)
        if view.final or view.cause is None or time.monotonic() > deadline:
            return
        time.sleep(ROUND_S)


def _is_up(watch: Watch, task: str) -> bool:
    status = watch.tasks.get(task)
    return status is not None and (status.up or status.outcome == "stopped")


def failure(fleet: Fleet, plan: Plan, watch: Watch) -> TfdeployError:
    """The run's first death in words, with that task's last lines."""
    deaths = [state.first_death for state in watch.states.values() if state and state.first_death]
    if deaths:
        first = min(deaths, key=lambda death: death.get("time") or 0.0)
        return run_failed(fleet, plan, str(first.get("task")), first)
    for status in watch.tasks.values():
        if status.state in ("ended", "lost") and status.outcome not in ("succeeded", "stopped"):
            return run_failed(fleet, plan, status.task, wire.to_wire(status))
    reasons = [state.abort_reason for state in watch.states.values() if state and state.abort_reason]
    return RunFailed(reasons[0] if reasons else "the run was ended before it was up", where=plan.run)


def run_failed(fleet: Fleet, plan: Plan, task: str, death: Mapping[str, Any]) -> RunFailed:
    host = next((planned.host for planned in plan.tasks if planned.task == task), "?")
    lines = last_lines(fleet, plan, task)
    shown = "".join(f"\n    {line}" for line in lines)
    return RunFailed(
        death_in_words(task, host, death) + (f"; its last lines:{shown}" if lines else " (it printed nothing)"),
        where=f"{task}@{host}",
        next=f"tfdeploy logs {plan.run} --task {task}",
    )
