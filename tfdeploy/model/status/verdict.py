"""Decide the state, the cause and the first death of a run from what its hosts report. Pure."""

from __future__ import annotations

from collections.abc import Collection

from tfdeploy.agent.wire import HostRunState
from tfdeploy.model.plan import Plan
from tfdeploy.model.status.task_status import (
    DEATHS,
    Death,
    TaskView,
    death_of,
    deaths_reported_by,
    earliest_death,
)

Verdict = tuple[str, str | None, str | None]  # state, cause, first death


def verdict(
    plan: Plan,
    states: list[HostRunState],
    views: tuple[TaskView, ...],
    unreachable: Collection[str],
    unasked: Collection[str],
) -> Verdict:
    """Return (state, cause, first death), derived from the reports of the hosts that answer. If the
    reports do not suffice, the cause names the hosts that do not answer."""
    silent = {*unreachable, *unasked}
    # A minder (the process that supervises a host's tasks) may report which death made the run
    # fail. Only if no minder reports one, the tasks' own outcomes show the first death.
    death = earliest_death(
        deaths_reported_by(states) or [death_of(view) for view in views if view.outcome in DEATHS]
    )
    cause = death.describe if death else _abort_reason(states)
    task = death.task if death else None
    if not _is_over(states, views, silent):
        return _unfinished_state(states, views), cause, task
    deciding = [view.outcome for view in views if view.task in plan.deciding]
    too_early = death is not None and death.outcome == "succeeded" and death.task in plan.deciding
    if {*deciding} == {"succeeded"} and not too_early:
        return "succeeded", None, None
    # Minders do not report a death after which the task restarts.
    fatal = any(s.first_death for s in states)
    if any(s.stop_requested for s in states) and not (fatal and _died_before_stop(death, views)):
        return "stopped", "stopped by an operator", None
    failed = any(s.first_death or s.abort_reason for s in states)
    if cause is not None and (failed or (death and death.outcome != "lost")):
        return "failed", cause, task
    if cause is None or not states:
        return "lost", _explain_unknown_end(states, unreachable, unasked), None
    return "lost", cause, task


def _is_over(
    states: list[HostRunState], views: tuple[TaskView, ...], silent: Collection[str]
) -> bool:
    """True if every host that answers reports that nothing of the run is alive there."""
    answering = [s for s in states if s.host not in silent]
    return all(_is_over_on_host(s, views) for s in answering or states)


def _is_over_on_host(state: HostRunState, views: tuple[TaskView, ...]) -> bool:
    task_states = {view.state for view in views if view.host == state.host}
    return state.phase == "ended" or ("lost" in task_states and task_states <= {"ended", "lost"})


def _unfinished_state(states: list[HostRunState], views: tuple[TaskView, ...]) -> str:
    committed = any(s.phase in ("committed", "ending", "ended") for s in states)
    # state of a task -> highest attempt number. While a task is in this state and the number of its
    # attempt is not higher, the run is `starting`. A higher number means that the task has
    # restarted; then the run stays `running`.
    first = {"pending": 0, "starting": 1}
    coming_up = any(
        v.state in first and v.attempt <= first[v.state] and v.health is None for v in views
    )
    return "running" if committed and not coming_up else "starting"


def _died_before_stop(death: Death | None, views: tuple[TaskView, ...]) -> bool:
    """True if the first death came before the end of the first task whose outcome is `stopped`.
    False if no task has this outcome."""
    if death is None or death.outcome == "lost" or death.time is None:
        return False
    stopped = [v.ended for v in views if v.outcome == "stopped" and v.ended is not None]
    return death.time < min(stopped, default=float("-inf"))


def _abort_reason(states: list[HostRunState]) -> str | None:
    reasons = ((s.ended or float("inf"), s.abort_reason) for s in states if s.abort_reason)
    return min(reasons, default=(0.0, None))[1]


def _explain_unknown_end(
    states: list[HostRunState], unreachable: Collection[str], unasked: Collection[str]
) -> str:
    hosts = {"cannot be reached": unreachable, "not asked": unasked}
    silent = [f"{why}: {', '.join(sorted(names))}; " for why, names in hosts.items() if names]
    if silent:
        return "".join(silent) + "how the run ended is not known"
    if not states:
        return "no host of this run has a record of the run any more"
    return "the run has ended on all hosts, but no host reports its result"
