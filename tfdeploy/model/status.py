"""How a run stands, decided from what its hosts say ("How a run starts and ends" in the contract). Pure.

The hosts' files are the truth. What they do not say is never guessed: it is `lost`, and of a host that does
not answer `health` is "unreachable" beside what was last known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any

from tfdeploy.agent.wire import HostRunState, TaskStatus
from tfdeploy.model.plan import Plan, TaskPlan

FINAL_STATES = frozenset({"succeeded", "failed", "stopped", "lost"})
DEATHS = frozenset({"failed", "killed", "gave_up", "lost"})
Metrics = Mapping[str, tuple[int | None, float | None]]
_NO_METRICS: Metrics = MappingProxyType({})


@dataclass(frozen=True)
class TaskView:
    """One task as operators see it. Times are UTC seconds."""

    task: str
    host: str
    state: str  # wire.TASK_STATES
    address: str
    gpus: tuple[int, ...]
    health: str | None = None  # "unreachable", "stalled"
    outcome: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    pid: int | None = None
    attempt: int = 0
    restarts: int = 0
    step: int | None = None
    loss: float | None = None
    started: float | None = None
    ended: float | None = None
    reason: str | None = None
    up: bool = False
    log_lost_bytes: int = 0  # its host's disk was full


@dataclass(frozen=True)
class RunView:
    """One run. `cause` says in words why it is not (or no longer) well; `first_death` names the task it began with."""

    run: str
    job: str
    mode: str
    state: str  # wire.RUN_STATES
    started: float
    ended: float | None
    tasks: tuple[TaskView, ...]
    cause: str | None = None
    first_death: str | None = None  # the task's name
    unreachable: tuple[str, ...] = ()
    left_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # host -> paths in its cwd/

    @property
    def final(self) -> bool:
        return self.state in FINAL_STATES


def run_view(
    plan: Plan,
    host_states: Mapping[str, HostRunState | None],
    tasks: Mapping[str, TaskStatus],
    *,
    unreachable: Collection[str] = (),
    metrics: Metrics = _NO_METRICS,
) -> RunView:
    """Decides state and cause. `host_states`: None or absent means that the host does not know this run;
    of an unreachable host, what was last known may be given. `metrics`: task -> (step, loss)."""
    states = [s for h in plan.hosts if (s := host_states.get(h.host)) is not None]
    views = tuple(_task_view(t, host_states.get(t.host), tasks, states, t.host in unreachable, metrics) for t in plan.tasks)
    state, cause, first = _verdict(plan, states, views, unreachable)
    views = _with_collateral(views, first)
    ends = [e for e in (*(s.ended for s in states), *(v.ended for v in views)) if e is not None]
    return RunView(
        run=plan.run,
        job=plan.job,
        mode=plan.mode,
        state=state,
        started=min((s.started for s in states if s.started is not None), default=plan.created),
        ended=max(ends, default=None) if state in FINAL_STATES else None,
        tasks=views,
        cause=cause,
        first_death=first,
        unreachable=tuple(h.host for h in plan.hosts if h.host in unreachable),
        left_files={s.host: tuple(s.left_files) for s in states if s.left_files},
    )


def _with_collateral(views: tuple[TaskView, ...], first: str | None) -> tuple[TaskView, ...]:
    """What died after the first death says so, unless it has a reason of its own."""
    began = next((view.ended for view in views if view.task == first), None)
    if began is None:
        return views
    return tuple(
        replace(view, reason=f"after {first} died")
        if view.outcome in DEATHS and view.reason is None and view.task != first and (view.ended or 0.0) > began
        else view
        for view in views
    )


def exit_code(view: RunView) -> int:
    """Of a finished run: 0 when it succeeded, else 1. One that still runs: 0."""
    return 1 if view.state in ("failed", "stopped", "lost") else 0


def run_view_json(view: RunView) -> dict[str, Any]:
    """The contract's `status --json`, exactly."""
    return {
        "run": view.run,
        "job": view.job,
        "mode": view.mode,
        "state": view.state,
        "started": iso_z(view.started),
        "ended": iso_z(view.ended),
        "tasks": [_task_json(task) for task in view.tasks],
    }


def iso_z(seconds: float | None) -> str | None:
    """UTC seconds as 2026-11-21T10:15:00Z (with milliseconds where there are any)."""
    if seconds is None:
        return None
    whole = datetime.fromtimestamp(round(seconds, 3), tz=timezone.utc)
    return whole.isoformat(timespec="milliseconds" if whole.microsecond else "seconds").replace("+00:00", "Z")


def death_in_words(task: str, host: str | None, death: Mapping[str, Any]) -> str:
    """'worker:1 on n2 failed with exit code 1: reason', from an outcome's fields."""
    outcome = death.get("outcome") or "ended"
    text = f"{task} on {host}" if host else task
    if death.get("reason"):
        text += f" {outcome.replace('_', ' ')}: {death['reason']}"
    elif outcome == "failed" and death.get("exit_code") is not None:
        text += f" failed with exit code {death['exit_code']}"
    elif outcome == "killed" and death.get("signal") is not None:
        text += f" was killed by signal {death['signal']}"
    elif outcome == "succeeded":
        text += " ended too early, with exit code 0"
    else:
        text += f" {outcome.replace('_', ' ')}"
    return text


def stall_words(reason: str | None, since: float | None, *, last_known: bool = False) -> str | None:
    """Why a task is stalled and since when. `last_known`: of a host that cannot be reached now. None: it is not."""
    if reason is None:
        return None
    when = f" (since {iso_z(round(since))})" if since is not None else ""
    return f"{'when last heard of, stalled: ' if last_known else ''}{reason}{when}"


# --- tasks ------------------------------------------------------------------------------------------


def _task_view(
    planned: TaskPlan,
    host_state: HostRunState | None,
    tasks: Mapping[str, TaskStatus],
    states: list[HostRunState],
    unreachable: bool,
    metrics: Metrics,
) -> TaskView:
    status = tasks.get(planned.task)
    if status is None or (unreachable and status.state != "ended"):
        status = _told_by_others(planned, states) or status or _unsaid(planned, host_state, states, unreachable)
    step, loss = metrics.get(planned.task, (None, None))
    return TaskView(
        task=planned.task,
        host=planned.host,
        state=status.state,
        address=planned.address,
        gpus=planned.gpus,
        health="unreachable" if unreachable and status.state != "ended" else status.health,
        outcome=status.outcome,
        exit_code=status.exit_code,
        signal=status.signal,
        pid=status.pid,
        attempt=status.attempt,
        restarts=max(0, status.attempt - 1),
        step=step,
        loss=loss,
        started=status.started,
        ended=status.ended,
        reason=status.reason or stall_words(status.health_reason, status.health_since, last_known=unreachable),
        up=status.up,
        log_lost_bytes=status.log_lost_bytes,
    )


def _told_by_others(planned: TaskPlan, states: Iterable[HostRunState]) -> TaskStatus | None:
    """What the mesh told other hosts about a task whose own host does not say."""
    for state in states:
        told = state.ended_tasks.get(planned.task)
        if told:
            return TaskStatus(
                run=state.run,
                task=planned.task,
                host=planned.host,
                state="ended",
                attempt=told.get("attempt") or 1,
                outcome=told.get("outcome"),
                exit_code=told.get("exit_code"),
                signal=told.get("signal"),
                reason=told.get("reason"),
                ended=told.get("time", told.get("ended")),
            )
    return None


def _unsaid(planned: TaskPlan, host_state: HostRunState | None, states: list[HostRunState], unreachable: bool) -> TaskStatus:
    beginning = all(state.phase == "prepared" for state in states)
    known = host_state.phase in ("prepared", "started") if host_state else beginning and bool(states)
    if known and not unreachable:
        return TaskStatus(run="", task=planned.task, host=planned.host)
    return TaskStatus(run="", task=planned.task, host=planned.host, state="lost", outcome=None if unreachable else "lost")


def _task_json(view: TaskView) -> dict[str, Any]:
    return {
        "task": view.task,
        "host": view.host,
        "state": view.state,
        "health": view.health,
        "outcome": view.outcome,
        "exit_code": view.exit_code,
        "signal": view.signal,
        "pid": view.pid,
        "address": view.address,
        "gpus": list(view.gpus),
        "attempt": view.attempt,
        "restarts": view.restarts,
        "step": view.step,
        "loss": view.loss,
        "started": iso_z(view.started),
        "ended": iso_z(view.ended),
        "reason": view.reason,
    }


# --- the run ----------------------------------------------------------------------------------------

_Verdict = tuple[str, str | None, str | None]  # state, cause, first death


def _verdict(plan: Plan, states: list[HostRunState], views: tuple[TaskView, ...], unreachable: Collection[str]) -> _Verdict:
    death = _first_death(states, views)
    cause = death_in_words(death["task"], death.get("host"), death) if death else _abort_reason(states)
    first = death["task"] if death else None
    if not _over(states, views, unreachable):
        return _going(states, views), cause, first
    deciding = [view.outcome for view in views if view.task in plan.deciding]
    too_early = death is not None and death["outcome"] == "succeeded" and death["task"] in plan.deciding
    if deciding and all(outcome == "succeeded" for outcome in deciding) and not too_early:
        return "succeeded", None, None
    fatal = any(s.first_death for s in states)  # a death that would have started again is none
    if any(s.stop_requested for s in states) and not (fatal and _died_before_stop(death, views)):
        return "stopped", "stopped by an operator", None
    said = any(s.first_death or s.abort_reason for s in states)
    if cause is not None and (said or (death and death["outcome"] != "lost")):
        return "failed", cause, first
    if cause is None or not states:
        return "lost", _nobody_knows(states, unreachable), None
    return "lost", cause, first


def _over(states: list[HostRunState], views: tuple[TaskView, ...], unreachable: Collection[str]) -> bool:
    """Nothing of the run is known to be alive on any host that answers."""
    answering = [s for s in states if s.host not in unreachable]
    alive = [s for s in (answering or states) if not _host_over(s, views)]
    return not alive


def _host_over(state: HostRunState, views: tuple[TaskView, ...]) -> bool:
    here = [view.state for view in views if view.host == state.host]
    return state.phase == "ended" or ("lost" in here and all(s in ("ended", "lost") for s in here))


def _going(states: list[HostRunState], views: tuple[TaskView, ...]) -> str:
    committed = any(s.phase in ("committed", "ending", "ended") for s in states)
    first = {"pending": 0, "starting": 1}  # the attempt; what starts again does not take the run back
    coming_up = any(v.state in first and v.attempt <= first[v.state] and v.health is None for v in views)
    return "running" if committed and not coming_up else "starting"


def _first_death(states: list[HostRunState], views: tuple[TaskView, ...]) -> dict[str, Any] | None:
    """The earliest death in time: what the minders call the cause, else the tasks' own outcomes."""
    told = [s.first_death for s in states if s.first_death and s.first_death.get("task")]
    if not told:
        told = [
            {"task": v.task, "host": v.host, "outcome": v.outcome, "exit_code": v.exit_code, "signal": v.signal}
            | {"reason": v.reason, "time": v.ended}
            for v in views
            if v.outcome in DEATHS
        ]
    return min(told, key=_death_order, default=None)


def _death_order(death: Mapping[str, Any]) -> tuple[bool, float]:
    """What is merely lost comes after what surely died; then by time."""
    return death.get("outcome") == "lost", death.get("time") or float("inf")


def _died_before_stop(death: Mapping[str, Any] | None, views: tuple[TaskView, ...]) -> bool:
    """The run had failed already when the operator stopped what was left of it."""
    if death is None or death.get("outcome") == "lost" or death.get("time") is None:
        return False
    stopped = [v.ended for v in views if v.outcome == "stopped" and v.ended is not None]
    return bool(death["time"] < min(stopped, default=float("-inf")))


def _abort_reason(states: list[HostRunState]) -> str | None:
    reasons = [(s.ended or float("inf"), s.abort_reason) for s in states if s.abort_reason]
    return min(reasons)[1] if reasons else None


def _nobody_knows(states: list[HostRunState], unreachable: Collection[str]) -> str:
    if unreachable:
        return f"cannot be reached: {', '.join(sorted(unreachable))}; how the run ended is not known"
    if not states:
        return "no host of this run knows it any more"
    return "every host has ended, and none says how the deciding task did"
