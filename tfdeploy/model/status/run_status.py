"""Derive the state of a run from what its hosts report. The hosts' files are the source of truth.
Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, TypedDict

from tfdeploy.agent.wire import HostRunState, TaskStatus
from tfdeploy.model.allowed import is_ip, is_name, to_printable_line
from tfdeploy.model.job import AskedLevel, Level, Protection
from tfdeploy.model.plan import Plan
from tfdeploy.model.row_values import IsoTime, RunState, copy_fields, iso_z
from tfdeploy.model.status.task_status import (
    DEATHS,
    FINAL_STATES,
    Metrics,
    TaskRow,
    TaskView,
    task_json,
    task_view,
)
from tfdeploy.model.status.verdict import verdict

_MOST_OPEN = 20  # at most this many open ports are shown
# At most this many callers (UnplannedCaller) are read from the report of one host, because a
# hostile host may report any number.
_MOST_CALLERS = 256
_NO_METRICS: Metrics = MappingProxyType({})


class UnplannedCaller(NamedTuple):
    """A connection from the minder of the host `member` to the minder of the host `host`. It came
    from `address`, an address that the plan did not contain."""

    host: str
    address: str
    member: str

    @property
    def refusal_text(self) -> str:
        """Return text that says that the tasks' ports refuse the caller's address, and why."""
        return (
            f"{self.member} connected to {self.host} from {self.address}, which is not an address "
            f"of {self.member}: the tasks' ports on {self.host} do not admit this address"
        )


@dataclass(frozen=True)
class RunView:
    """One run. `started`: when it was launched. `cause`: why it fails or failed. `first_death`: the
    task that died first."""

    run: str
    job: str
    mode: str
    state: str  # one of wire.RUN_STATES
    started: float
    ended: float | None
    tasks: tuple[TaskView, ...]
    cause: str | None = None
    first_death: str | None = None  # the task's name
    unreachable: tuple[str, ...] = ()
    # hosts that were deliberately not asked; the tasks of these hosts are not in `tasks`
    unasked: tuple[str, ...] = ()
    # host -> paths of files that tasks left in cwd/ on the host
    left_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cwd: str = ""  # the tasks' working directory, relative to the code folder
    # ports of a protected run that are open to everybody, as text
    open_ports: tuple[str, ...] = ()
    protect: Protection = field(default_factory=Protection)
    # Callers from addresses that the tasks' ports admit. The host `member` of such a caller stated
    # that the address is its own.
    admitted: tuple[UnplannedCaller, ...] = ()
    # Callers from addresses that the tasks' ports refuse. The host `member` of such a caller did
    # not state that the address is its own.
    not_admitted: tuple[UnplannedCaller, ...] = ()
    job_metrics: tuple[str, ...] = ()  # names of the job's own metrics

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES


def run_view(
    plan: Plan,
    host_states: Mapping[str, HostRunState | None],
    tasks: Mapping[str, TaskStatus],
    *,
    unreachable: Collection[str] = (),
    unasked: Collection[str] = (),
    metrics: Metrics = _NO_METRICS,
    unread: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> RunView:
    """Return the view of the run, with its state and cause.

    `host_states`: host -> its state; None or missing if the host does not know this run. For an
    unreachable host, this may be the last known state. `unasked`: hosts that were deliberately not
    asked; other hosts may still report about them. `metrics`: task -> newest value of each metric.
    `unread`: task -> metrics that the task's host no longer reads.
    """
    states = [state for state in map(host_states.get, plan.host_names) if state is not None]
    silent = {*unreachable, *unasked}
    views = tuple(
        task_view(
            task,
            host_states.get(task.host),
            tasks.get(task.task),
            states,
            task.host in silent,
            metrics.get(task.task, {}),
            unread.get(task.task, ()),
        )
        for task in plan.tasks
    )
    admitted = _valid_callers(
        (s.host, *each) for s in states for each in islice(s.admitted.items(), _MOST_CALLERS)
    )
    turned_away = _valid_callers(
        (s.host, address, name)
        for s in states
        for name, address in islice(s.not_admitted.items(), _MOST_CALLERS)
    )
    open_ports = tuple(
        f"{task}: {to_printable_line(how)[:300]}"
        for s in states
        for task, how in sorted(s.open_ports.items())
    )
    exceptions = [*open_ports[:_MOST_OPEN], *(each.refusal_text for each in turned_away)]
    state, cause, first = verdict(plan, states, views, unreachable, unasked)
    views = _blame_first_death(views, first)
    ends = [e for e in (*(s.ended for s in states), *(v.ended for v in views)) if e is not None]
    return copy_fields(
        RunView,
        plan,
        state=state,
        started=plan.created
        or min((s.started for s in states if s.started is not None), default=0.0),
        ended=max(ends, default=None) if state in FINAL_STATES else None,
        tasks=tuple(view for view in views if view.host not in unasked),
        cause=cause,
        first_death=first,
        unreachable=tuple(name for name in plan.host_names if name in unreachable),
        unasked=tuple(name for name in plan.host_names if name in unasked),
        left_files={s.host: tuple(s.left_files) for s in states if s.left_files},
        open_ports=open_ports[:_MOST_OPEN],
        protect=replace(plan.protect, why="; ".join([plan.protect.why, *exceptions])),
        admitted=admitted,
        not_admitted=turned_away,
        job_metrics=tuple(plan.metrics),
    )


def _valid_callers(reported: Iterable[tuple[str, str, str]]) -> tuple[UnplannedCaller, ...]:
    """Return the reported callers (host, address, member) whose address is an IP address and whose
    member has a valid name."""
    known = (UnplannedCaller(*each) for each in reported)
    return tuple(each for each in known if is_ip(each.address) and is_name(each.member))


def _blame_first_death(views: tuple[TaskView, ...], first: str | None) -> tuple[TaskView, ...]:
    """For each task that died after the first death and has no reason, set the first death as the
    reason."""
    began = next((view.ended for view in views if view.task == first), None)
    if began is None:
        return views
    return tuple(
        replace(view, reason=f"after {first} died")
        if view.outcome in DEATHS
        and view.reason is None
        and view.task != first
        and (view.ended or 0.0) > began
        else view
        for view in views
    )


def exit_code(view: RunView) -> int:
    """Return 0 for a run that succeeded or still runs, else 1."""
    return 1 if view.state in ("failed", "stopped", "lost") else 0


class CallerRow(TypedDict):
    """A connection from `address` to the host `host`. It was made by the host `of`, which also
    belongs to the run."""

    host: str
    address: str
    of: str


class ProtectRow(TypedDict):
    """`used`: the weakest level of all hosts. `hosts`: the level of each host; empty if an older
    tfdeploy launched the run.
    `admitted`: addresses that hosts stated as their own after the launch. `not_admitted`: addresses
    from which hosts connected, but which these hosts did not state as their own."""

    asked: AskedLevel
    used: Level
    why: str
    hosts: dict[str, Level]
    admitted: list[CallerRow]
    not_admitted: list[CallerRow]


class RunAnswer(TypedDict):
    """A run, as `status --json` and `launch --json` print it."""

    run: str
    job: str
    mode: str
    state: RunState
    started: IsoTime | None
    ended: IsoTime | None
    protect: ProtectRow
    tasks: list[TaskRow]


def run_view_json(view: RunView) -> RunAnswer:
    return copy_fields(
        RunAnswer,
        view,
        started=iso_z(view.started),
        ended=iso_z(view.ended),
        protect=copy_fields(
            ProtectRow,
            view.protect,
            admitted=_caller_rows(view.admitted),
            not_admitted=_caller_rows(view.not_admitted),
        ),
        tasks=[task_json(task) for task in view.tasks],
    )


def _caller_rows(callers: Iterable[UnplannedCaller]) -> list[CallerRow]:
    return [copy_fields(CallerRow, each, of=each.member) for each in callers]
