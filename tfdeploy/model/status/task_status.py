"""Derive the state of one task from what its own host reports, or else what the run's other hosts
report. Pure.

Nothing is guessed: a task that no host reports is `lost`. If the task's host does not answer,
`health` is "unreachable" and the other fields hold the last known values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TypedDict

from tfdeploy.agent import wire
from tfdeploy.agent.wire import HostRunState, TaskStatus
from tfdeploy.model.answers.samples import SHOWN_APART
from tfdeploy.model.plan import TaskPlan
from tfdeploy.model.row_values import (
    Health,
    IsoTime,
    Outcome,
    TaskState,
    copy_fields,
    iso_z,
    stall_words,
)

Metrics = Mapping[str, Mapping[str, float]]  # task -> the newest figure of each metric


@dataclass(frozen=True)
class TaskView:
    """One task as operators see it. Times are UTC seconds."""

    task: str
    host: str
    state: str  # one of wire.TASK_STATES
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
    metrics: Mapping[str, float] = field(default_factory=dict)  # all metrics but step and loss
    started: float | None = None
    ended: float | None = None
    reason: str | None = None
    began_again: str | None = None  # why the task restarted; None: this is the first attempt
    up: bool = False
    # bytes of lines that were not stored because the disk of the task's host was full
    log_lost_bytes: int = 0
    # metrics that are no longer read, because matching their patterns takes too long
    unread: tuple[str, ...] = ()


def task_view(
    planned: TaskPlan,
    host_state: HostRunState | None,
    status: TaskStatus | None,
    states: list[HostRunState],
    unreachable: bool,
    measured: Mapping[str, float],
    unread: tuple[str, ...],
) -> TaskView:
    """Return the view of the task: from `status`, which the task's own host reports, or else from
    `states`, which all hosts report."""
    if status is None or (unreachable and status.state != "ended"):
        status = (
            _reported_by_others(planned, states)
            or _lost_without_minder(planned, status, states)
            or status
            or _status_if_unreported(planned, host_state, states, unreachable)
        )
    return copy_fields(
        TaskView,
        status,
        task=planned.task,
        host=planned.host,
        address=planned.address,
        gpus=planned.gpus,
        health="unreachable" if unreachable and status.state != "ended" else status.health,
        restarts=max(0, status.attempt - 1),
        step=int(measured["step"]) if "step" in measured else None,
        loss=measured.get("loss"),
        metrics={name: value for name, value in measured.items() if name not in SHOWN_APART},
        reason=status.reason
        or stall_words(status.health_reason, status.health_since, last_known=unreachable)
        or status.began_again,
        unread=unread,
    )


def _reported_by_others(planned: TaskPlan, states: Iterable[HostRunState]) -> TaskStatus | None:
    """Return the status of an ended task as other hosts report it. The minders of a run tell each
    other the ends of tasks. Return None if no host knows the end of this task."""
    for state in states:
        reported = state.ended_tasks.get(planned.task)
        if reported:
            return TaskStatus(
                run=state.run,
                task=planned.task,
                host=planned.host,
                state="ended",
                attempt=reported.get("attempt") or 1,
                ended=reported.get("time", reported.get("ended")),
                outcome=reported.get("outcome"),
                exit_code=reported.get("exit_code"),
                signal=reported.get("signal"),
                reason=reported.get("reason"),
            )
    return None


def _lost_without_minder(
    planned: TaskPlan, status: TaskStatus | None, states: Iterable[HostRunState]
) -> TaskStatus | None:
    """Return a `lost` status if other hosts have found that the run has no minder on this host;
    else None."""
    if not any(planned.host in state.unminded for state in states if state.host != planned.host):
        return None
    last = status or _pending_status(planned)
    reason = "the other hosts report that no process of tfdeploy supervises the task"
    return wire.replace(last, state="lost", outcome="lost", up=False, reason=reason)


def _status_if_unreported(
    planned: TaskPlan,
    host_state: HostRunState | None,
    states: list[HostRunState],
    unreachable: bool,
) -> TaskStatus:
    phases = {state.phase for state in states}
    known = host_state.phase in ("prepared", "started") if host_state else phases == {"prepared"}
    if known and not unreachable:
        return _pending_status(planned)
    outcome = None if unreachable else "lost"
    return wire.replace(_pending_status(planned), state="lost", outcome=outcome)


def _pending_status(planned: TaskPlan) -> TaskStatus:
    return TaskStatus(run="", task=planned.task, host=planned.host)


class TaskRow(TypedDict):
    """One task, as `--json` prints it."""

    task: str
    host: str
    state: TaskState
    health: Health | None
    outcome: Outcome | None
    exit_code: int | None
    signal: int | None
    pid: int | None
    address: str
    gpus: list[int]
    attempt: int
    restarts: int
    step: int | None
    loss: float | None
    metrics: dict[str, float]  # all other metrics that the task printed or wrote to event files
    # metrics that are no longer read, because matching their patterns takes too long
    metrics_unread: list[str]
    started: IsoTime | None
    ended: IsoTime | None
    reason: str | None


def task_json(view: TaskView) -> TaskRow:
    return copy_fields(
        TaskRow,
        view,
        gpus=list(view.gpus),
        # JSON cannot express NaN and infinity, so such values are left out.
        loss=view.loss if view.loss is not None and isfinite(view.loss) else None,
        metrics={name: value for name, value in view.metrics.items() if isfinite(value)},
        metrics_unread=list(view.unread),
        started=iso_z(view.started),
        ended=iso_z(view.ended),
    )
