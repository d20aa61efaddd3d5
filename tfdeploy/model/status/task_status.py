"""Derive the state of one task from what its own host reports, or else what the run's other hosts
report; collect its attempts; and find the death that made a run fail. Hold the samples that the
hosts have recorded so far. The functions are pure.

Nothing is guessed: a task that no host reports is `lost`. If the task's host does not answer,
`health` is "unreachable" and the other fields hold the last known values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, NamedTuple, TypedDict

from tfdeploy.agent import wire
from tfdeploy.agent.wire import HostRunState, TaskStatus
from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.samples import (
    SHOWN_APART,
    AttemptRow,
    HostSample,
    SampledHost,
    TaskSample,
)
from tfdeploy.model.events import Event
from tfdeploy.text.row_values import (
    Health,
    IsoTime,
    Outcome,
    TaskState,
    copy_fields,
    iso_z,
    outcome_words,
    short_error,
    stall_words,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tfdeploy.model.plan import TaskPlan

Metrics = Mapping[str, Mapping[str, float]]  # {task: {metric: its newest value}}


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
    value_by_metric: Mapping[str, float],
    unread: tuple[str, ...],
) -> TaskView:
    """Return the view of the task: from `status`, which the task's own host reports, or else from
    `states`, which all hosts report."""
    if status is None or (unreachable and status.state != "ended"):
        status = (
            _find_status_on_other_hosts(planned, states)
            or _make_lost_status_without_minder(planned, status, states)
            or status
            or _pending_or_lost_status(planned, host_state, states, unreachable)
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
        step=int(value_by_metric["step"]) if "step" in value_by_metric else None,
        loss=value_by_metric.get("loss"),
        metrics={name: value for name, value in value_by_metric.items() if name not in SHOWN_APART},
        reason=(
            f"the run's files on {planned.host} were removed"
            if host_state is None and status.outcome == "lost" and not unreachable
            else status.reason
        )
        or stall_words(status.health_reason, status.health_since, last_known=unreachable)
        or status.began_again,
        unread=unread,
    )


def _find_status_on_other_hosts(
    planned: TaskPlan, states: Iterable[HostRunState]
) -> TaskStatus | None:
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


def _make_lost_status_without_minder(
    planned: TaskPlan, status: TaskStatus | None, states: Iterable[HostRunState]
) -> TaskStatus | None:
    """Return a `lost` status if other hosts have found that no minder of the run is alive on the
    task's host; else None. (A minder is the process that supervises the tasks.)"""
    if not any(planned.host in state.unminded for state in states if state.host != planned.host):
        return None
    last = status or _pending_status(planned)
    reason = "the other hosts report that no process of tfdeploy supervises the task"
    return wire.replace(last, state="lost", outcome="lost", up=False, reason=reason)


def _pending_or_lost_status(
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


# the fields of an attempt that say how it ended
_END = ("ended", "outcome", "reason", "exit_code", "signal")


@dataclass(frozen=True)
class Attempt:
    """One attempt. `started`, `ended`: UTC seconds. If `ended` and `outcome` are None, the attempt
    runs."""

    task: str
    number: int
    started: float
    ended: float | None
    outcome: str | None
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    # The last line of output of the attempt. It is recorded when the next attempt begins; until
    # then, this field is "".
    last_line: str = ""

    @property
    def end_text(self) -> str:
        """Return how the attempt ended, such as 'failed: 1, ValueError: bad shard'; '' while it
        runs."""
        if not self.outcome:
            return ""
        how = outcome_words(self.outcome, self.exit_code, self.signal)
        reason, last = self.reason or "", short_error(self.last_line)
        return ", ".join(part for part in (how, reason, "" if last in reason else last) if part)


def make_attempt_from_row(task: str, row: AttemptRow) -> Attempt:
    """Convert a host's record of one attempt of `task` to an Attempt."""
    return copy_fields(Attempt, row, task=task, last_line="")


def with_inferred_end(attempt: Attempt, following: Attempt | None) -> Attempt:
    """Return the attempt. If its end was not recorded, the returned attempt ends at the start of
    `following`."""
    if attempt.ended is not None or following is None:
        return attempt
    if attempt.outcome is not None:
        return replace(attempt, ended=following.started)
    return replace(
        attempt, ended=following.started, outcome="lost", reason="how it ended is not known"
    )


def merge_event_into_attempt(
    event: Event, known_attempts: Mapping[tuple[str, int], Attempt]
) -> Attempt | None:
    """Return what is known about an attempt after this event of its task; None if the event
    concerns no attempt. `known_attempts`: the attempts known so far."""
    fields = event.data
    task, number = event.task or fields.get("task") or "", fields.get("attempt") or 0
    known = known_attempts.get((task, number))
    start = fields.get("started") or (known.started if known else None)
    if not task or not number or start is None:
        return None
    end: dict[str, Any] = {name: fields.get(name) for name in _END}
    return merge_status_into_attempt(known, Attempt(task, number, start, **end))


def merge_status_into_attempt(known: Attempt | None, reported: Attempt) -> Attempt:
    """Return the known attempt, updated by the task's status.

    While a task waits to restart, its status has no outcome, and the reason in the status is the
    reason for the restart. This reason does not say how the attempt ended, so it is left out.
    """
    if reported.outcome is not None:
        return reported
    if known is not None and known.outcome not in (None, "lost"):
        return known
    if reported.ended is None:
        return reported
    return replace(reported, outcome="failed" if reported.signal is None else "killed", reason=None)


def merge_recorded_attempts(
    known_attempts: dict[tuple[str, int], Attempt], recorded: Mapping[str, Sequence[Attempt]]
) -> list[Attempt]:
    """Add the attempts that hosts have recorded to `known_attempts`. `recorded`: {task: its
    attempts}. `known_attempts`: {(task, number of the attempt): attempt}. A recorded end replaces
    the end that a status reported.

    Return the attempts whose end was not known before.
    """
    ended = []
    for task, each in ((task, each) for task, attempts in recorded.items() for each in attempts):
        key = task, each.number
        known = known_attempts.get(key)
        if known is None:
            known_attempts[key] = each
        elif each.ended is not None:
            known_attempts[key] = replace(each, last_line=known.last_line)
        if each.ended is not None and (known is None or known.ended is None):
            ended.append(each)
    return ended


def make_attempt_end_event(attempt: Attempt, host: str) -> Event:
    """Return the event of the attempt's end that a client would have received if it had watched the
    run when the attempt ended."""
    task, number = attempt.task, attempt.number
    data = {name: getattr(attempt, name) for name in ("started", *_END)}
    data |= {"state": "ended", "attempt": number}
    time = attempt.ended if attempt.ended is not None else attempt.started
    return Event("task", time, host=host, task=task, attempt=number, data=data)


FINAL_STATES = frozenset(
    {"succeeded", "failed", "stopped", "lost"}
)  # the states of a run that has ended


class Death(NamedTuple):
    """The death of one task. `time`: UTC seconds by the clock of its host."""

    task: str
    host: str | None
    outcome: str
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    time: float | None = None

    @property
    def text(self) -> str:
        """Return text such as 'worker:1 on n2 failed with exit code 1: reason'."""
        ending = wire.describe_task_death(self.outcome, self.exit_code, self.signal, self.reason)
        return f"{self.task} on {self.host} {ending}" if self.host else f"{self.task} {ending}"


def earliest_death(deaths: Iterable[Death]) -> Death | None:
    """Return the earliest death; None if there is none. A task with the outcome `lost` may not have
    died, so such a death is returned only if there is no other."""
    return min(
        deaths,
        key=lambda death: (death.outcome == "lost", death.time or float("inf")),
        default=None,
    )


def deaths_reported_by(states: Iterable[wire.HostRunState]) -> list[Death]:
    """Return the deaths that the minders (the processes that supervise the tasks) of these hosts
    report as the cause of the run's failure."""
    reports = (state.first_death for state in states)
    return [_death_from_report(fields) for fields in reports if fields and fields.get("task")]


def make_task_death(task: Any) -> Death:
    """Return the death of a task from its TaskStatus, TaskView or TaskProgress."""
    return copy_fields(Death, task, outcome=task.outcome or "ended", time=task.ended)


def _death_from_report(fields: Mapping[str, Any]) -> Death:
    """Return the death that a minder describes in these fields. Fields that are missing become
    None."""
    known = {name: fields.get(name) for name in ("host", "exit_code", "signal", "reason", "time")}
    return Death(task=fields["task"], outcome=fields.get("outcome") or "ended", **known)


def combine_gpu_use(
    per_gpu: Iterable[tuple[float | None, int | None]],
) -> tuple[float | None, int | None]:
    """Return the mean use of several GPUs in percent, and the bytes in use in all of them.

    `per_gpu`: (percent, bytes) of each GPU. A value is None if it was not measured.
    """
    known = list(per_gpu)
    busy = [percent for percent, _ in known if percent is not None]
    memory = [used for _, used in known if used is not None]
    return sum(busy) / len(busy) if busy else None, sum(memory) if memory else None


@dataclass(frozen=True)
class Samples:
    """The samples of a run. `tasks`, `hosts`: {name of the task or host: its samples, the oldest
    first}. `attempts`: {task: its attempts, the oldest first}. `errors`: {host that did not answer:
    its error}."""

    tasks: dict[str, list[TaskSample]] = field(default_factory=dict)
    hosts: dict[str, list[HostSample]] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    machines: dict[str, SampledHost] = field(default_factory=dict)
    errors: dict[str, TfdeployError] = field(default_factory=dict)
