"""The state of a run, by what its hosts report: their files are the truth. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypedDict

from tfdeploy.agent.wire import HostRunState, TaskStatus
from tfdeploy.model.deaths import DEATHS
from tfdeploy.model.hostplan import printable
from tfdeploy.model.json_words import IsoTime, RunState
from tfdeploy.model.plan import Plan
from tfdeploy.model.protect import AskedLevel, Level, Protection
from tfdeploy.model.taskview import Metrics, TaskRow, TaskView, task_json, task_view
from tfdeploy.model.verdict import FINAL_STATES, verdict
from tfdeploy.model.words import iso_z

_MOST_OPEN = 20
_NO_METRICS: Metrics = MappingProxyType({})


@dataclass(frozen=True)
class RunView:
    """One run. `cause`: why it fails or failed, in words; `first_death`: the task that died first."""

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
    unasked: tuple[str, ...] = ()  # left out on purpose: their tasks are not in `tasks`
    left_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # host -> paths in its cwd/
    open_ports: tuple[str, ...] = ()  # those open to everybody in a protected run, in words
    protect: Protection = field(default_factory=Protection)

    @property
    def final(self) -> bool:
        return self.state in FINAL_STATES


def run_view(
    plan: Plan,
    host_states: Mapping[str, HostRunState | None],
    tasks: Mapping[str, TaskStatus],
    *,
    unreachable: Collection[str] = (),
    unasked: Collection[str] = (),
    metrics: Metrics = _NO_METRICS,
) -> RunView:
    """Decides state and cause. `host_states`: None or absent: the host does not know this run; of an unreachable host
    its last known state may be given. `unasked`: hosts left out on purpose; only the other hosts report about them.
    `metrics`: task -> its newest figures."""
    states = [s for h in plan.hosts if (s := host_states.get(h.host)) is not None]
    silent = {*unreachable, *unasked}
    views = tuple(task_view(t, host_states.get(t.host), tasks, states, t.host in silent, metrics) for t in plan.tasks)
    state, cause, first = verdict(plan, states, views, unreachable, unasked)
    views = _with_collateral(views, first)
    ends = [e for e in (*(s.ended for s in states), *(v.ended for v in views)) if e is not None]
    return RunView(
        run=plan.run,
        job=plan.job,
        mode=plan.mode,
        state=state,
        started=min((s.started for s in states if s.started is not None), default=plan.created),
        ended=max(ends, default=None) if state in FINAL_STATES else None,
        tasks=tuple(view for view in views if view.host not in unasked),
        cause=cause,
        first_death=first,
        unreachable=tuple(h.host for h in plan.hosts if h.host in unreachable),
        unasked=tuple(h.host for h in plan.hosts if h.host in unasked),
        left_files={s.host: tuple(s.left_files) for s in states if s.left_files},
        open_ports=_open_ports(states),
        protect=_with_open(plan.protect, _open_ports(states)),
    )


def _open_ports(states: Iterable[HostRunState]) -> tuple[str, ...]:
    found = [f"{task}: {printable(words)[:300]}" for state in states for task, words in sorted(state.open_ports.items())]
    return tuple(found[:_MOST_OPEN])


def _with_open(protection: Protection, open_ports: tuple[str, ...]) -> Protection:
    """Its `why` also names the ports that are open all the same, as their hosts see it."""
    return replace(protection, why="; ".join([protection.why, *open_ports])) if open_ports else protection


def _with_collateral(views: tuple[TaskView, ...], first: str | None) -> tuple[TaskView, ...]:
    """Tasks that died after the first death get that as their reason, unless they have one."""
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
    """0 for a run that succeeded or still runs, else 1."""
    return 1 if view.state in ("failed", "stopped", "lost") else 0


class ProtectRow(TypedDict):
    asked: AskedLevel
    used: Level
    why: str


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
    return {
        "run": view.run,
        "job": view.job,
        "mode": view.mode,
        "state": view.state,
        "started": iso_z(view.started),
        "ended": iso_z(view.ended),
        "protect": {"asked": view.protect.asked, "used": view.protect.used, "why": view.protect.why},
        "tasks": [task_json(task) for task in view.tasks],
    }
