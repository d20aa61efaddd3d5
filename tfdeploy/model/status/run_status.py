"""Derive the state of a run, its cause and its first death from what its hosts report. Find the
hosts that do not know that the run is over. The hosts' files are the source of truth. The functions
are pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, TypedDict

from tfdeploy.agent.wire import DEATHS, HostRunState, TaskStatus
from tfdeploy.model.job import AskedLevel, Level, Protection
from tfdeploy.model.plan import Plan
from tfdeploy.model.status.task_status import (
    FINAL_STATES,
    Death,
    Metrics,
    TaskRow,
    TaskView,
    deaths_reported_by,
    earliest_death,
    make_task_death,
    task_json,
    task_view,
)
from tfdeploy.text.allowed import is_ip, is_name, to_printable_line
from tfdeploy.text.row_values import IsoTime, RunState, copy_fields, iso_z

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
    def address_refusal_text(self) -> str:
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
    # {host: paths of files that tasks left in cwd/ on the host}
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

    `host_states`: {host: its state}; None or missing if the host does not know this run. For an
    unreachable host, this may be the last known state. `unasked`: hosts that were deliberately not
    asked; other hosts may still report about them. `metrics`: {task: newest value of each metric}.
    `unread`: {task: metrics that the task's host no longer reads}.
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
    exceptions = [*open_ports[:_MOST_OPEN], *(each.address_refusal_text for each in turned_away)]
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


def _valid_callers(reported_callers: Iterable[tuple[str, str, str]]) -> tuple[UnplannedCaller, ...]:
    """Return the reported callers (host, address, member) whose address is an IP address and whose
    member has a valid name."""
    known = (UnplannedCaller(*each) for each in reported_callers)
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
    # fail. If no minder reports such a death, the tasks' own outcomes show the first death.
    death = earliest_death(
        deaths_reported_by(states)
        or [make_task_death(view) for view in views if view.outcome in DEATHS]
    )
    cause = death.text if death else _abort_reason(states)
    task = death.task if death else None
    if not _is_over(states, views, silent):
        return _unfinished_state(states, views), cause, task
    deciding = [view.outcome for view in views if view.task in plan.deciding]
    too_early = death is not None and death.outcome == "succeeded" and death.task in plan.deciding
    if {*deciding} == {"succeeded"} and not too_early:
        return "succeeded", None, None
    # A death that a minder reports has made the run fail, because minders do not report a death
    # after which the task restarts.
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
    # A task in one of these states starts for the first time if its attempt has this number. Then
    # the run is `starting`. If the number is higher, the task restarts, and the run stays
    # `running`.
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


def find_informed_and_uninformed_hosts(
    state_by_host: Mapping[str, HostRunState | None], plan: Plan
) -> tuple[str | float, tuple[str, ...]] | None:
    """Return (a host that knows that the run is over, the hosts that do not know this and so still
    run their tasks), or None if nobody needs to be told.

    If no host knows it, although all deciding tasks have succeeded, each host knows only of its own
    tasks. Then the first value is the time of the last success, in UTC seconds.
    """
    known = {host: state for host, state in sorted(state_by_host.items()) if state is not None}
    knowing = [host for host, state in known.items() if _knows_run_over(state)]
    lacking = tuple(
        h
        for h, s in known.items()
        if s.phase in ("started", "committed") and not _knows_run_over(s)
    )
    informed = knowing[0] if knowing else _success_time(known, plan)
    return (informed, lacking) if informed is not None and lacking else None


def _success_time(known: Mapping[str, HostRunState], plan: Plan) -> float | None:
    """Return when the last deciding task succeeded. Return None unless the hosts of all deciding
    tasks report their success, in the newest round of a gang, and a complete launch."""
    newest = max((s.round["n"] for s in known.values() if s.round), default=1)
    times = []
    for task in plan.tasks:
        if task.deciding:
            state = known.get(task.host)
            if state is None or state.phase not in ("committed", "ended"):
                return None
            ending = state.ended_tasks.get(task.task)
            if (
                ending is None
                or (ending["outcome"], ending.get("up")) != ("succeeded", True)
                or ending.get("round", 1) != newest
            ):
                return None
            times.append(ending["time"])
    return max(times, default=None)


def _knows_run_over(state: HostRunState) -> bool:
    stopped = state.stop_requested and state.phase in ("ending", "ended")
    return stopped or bool(state.abort_reason or state.first_death) or "decided" in state.marks
