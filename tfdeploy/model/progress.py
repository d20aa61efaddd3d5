"""The progress of a run: a pure fold over its events. The same events give the same state, live or replayed.

It reads no clock: time is the events' time. A line costs about a microsecond; step and loss are computed when
they are read. Nothing here is sanitised: text is as the hosts sent it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import cast

import msgspec

from tfdeploy.model import deaths
from tfdeploy.model.answers.samples import NewestSamples
from tfdeploy.model.deaths import DEATHS, Death
from tfdeploy.model.events import BroadcastFields, Event, TaskFields, TransferFields
from tfdeploy.model.job import DEFAULT_METRICS
from tfdeploy.model.measures import MATCHED_CHARS, OTHER_STEPS, Measures, Patterns, compile_patterns, last_state, own_metrics
from tfdeploy.model.modes import rules
from tfdeploy.model.plan import Plan, plan_from_json
from tfdeploy.model.transfers import Transfer
from tfdeploy.model.typed import convert
from tfdeploy.model.verdict import FINAL_STATES
from tfdeploy.model.words import stall_words

STEPS = ("lock", "probe", "plan", "sync", "prepare", "start", "commit")
TRAINERS = ("worker", "chief")
_KEPT_NOTES = 100
_FIELDS = frozenset(TaskFields.__annotations__) - {"task", "host", "attempt", "state"}
_RANK = {"pending": 0, "starting": 1, "running": 2, "lost": 3, "ended": 4}


class TaskProgress:
    """One task so far. Times are the host's UTC seconds."""

    def __init__(self, task: str, host: str | None, patterns: Patterns) -> None:
        self.task = task
        self.host = host or "?"
        self.gpus: tuple[int, ...] = ()
        self.deciding = False
        self.state = "pending"
        self.up = False
        self.outcome: str | None = None
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.reason: str | None = None
        self.health: str | None = None
        self.health_reason: str | None = None
        self.health_since: float | None = None
        self.pid: int | None = None
        self.attempt = 0
        self.started: float | None = None
        self.ended: float | None = None
        self.lines = 0
        self.last_raw = ""
        self.last_time: float | None = None
        self.cpu: float | None = None  # cores in use, while it runs; None: not measured
        self.memory: int | None = None  # bytes
        self.measures = Measures(patterns)

    @property
    def restarts(self) -> int:
        return max(0, self.attempt - 1)

    @property
    def step(self) -> int | None:
        return self.measures.step

    @property
    def loss(self) -> float | None:
        return self.measures.loss

    @property
    def rate(self) -> float | None:
        """Steps per second, while it runs."""
        return self.rate_of("step")

    def rate_of(self, name: str) -> float | None:
        """Of one of the measures that count steps."""
        return None if self.state in ("ended", "lost") else self.measures.rate(self.last_time, name)

    @property
    def last_line(self) -> str:
        """Its last line; of a progress bar, the last state."""
        return last_state(self.last_raw)

    @property
    def dead(self) -> bool:
        return self.outcome in DEATHS

    @property
    def death(self) -> Death:
        """How it ended. Only for a task that is `dead`."""
        return Death(self.task, self.host, self.outcome or "ended", self.exit_code, self.signal, self.reason, self.ended)

    def apply(self, fields: TaskFields) -> None:
        """Takes a TaskStatus's fields, unless they are older than those it has."""
        attempt, state = fields.get("attempt", self.attempt), fields.get("state", self.state)
        if _order(attempt, state) < _order(self.attempt, self.state):
            return
        if attempt > self.attempt:
            self.measures.restart()
        self.attempt, self.state = attempt, state
        for name, value in fields.items():
            if name in _FIELDS:
                setattr(self, name, value)


def _order(attempt: int, state: str) -> tuple[int, int]:
    """A key that grows over time. `pending` after an attempt is later than that attempt's end: the task waits to start again."""
    return attempt, len(_RANK) if state == "pending" and attempt else _RANK.get(state, 0)


class HostProgress:
    """One host so far: the last state of its connection, and what is being sent to it."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.state = ""  # connected, unreachable, failed, prepared, started, committed
        self.text: str | None = None
        self.transfers: dict[str, Transfer] = {}
        self.synced = False  # code and data are complete there
        self.gpus: dict[int, tuple[float | None, int | None]] = {}  # number -> percent busy, bytes in use

    def transfer(self, what: str) -> Transfer:
        return self.transfers.setdefault(what, Transfer(what))


class RunProgress:
    """The fold. `apply` each event in order; then read. Not thread-safe: one thread applies and reads."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan: Plan | None = None
        self.run: str | None = None
        self.state = "starting"
        self.first_time: float | None = None
        self.now: float | None = None  # the latest time in the control machine's events
        self.ended: float | None = None
        self.tasks: dict[str, TaskProgress] = {}
        self.hosts: dict[str, HostProgress] = {}
        self.broadcasts: dict[str, BroadcastFields] = {}  # those under way, by what they move
        self.steps: dict[str, str] = {}  # of the launch: name -> begin, done, failed
        self.notes: deque[tuple[float, str, str]] = deque(maxlen=_KEPT_NOTES)  # time, level, text
        self.left_files: dict[str, list[str]] = {}
        self.lines = 0
        self.shares_step = False  # several tasks share one step counter, each at its own pace: the step in a line is the run's
        self._cause: str | None = None
        self._patterns: Patterns = compile_patterns({**OTHER_STEPS, **DEFAULT_METRICS})
        if plan is not None:
            self.take_plan(plan)

    def apply(self, event: Event) -> None:
        if event.kind == "line":
            self._line(event)
            return
        self.run = event.run or self.run
        if event.kind != "task":
            self.first_time = event.time if self.first_time is None else self.first_time
            self.now = event.time if self.now is None else max(self.now, event.time)
        _FOLDS[event.kind](self, event)

    def apply_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.apply(event)

    def take_plan(self, plan: Plan) -> None:
        self.plan, self.run = plan, plan.run
        self._patterns = compile_patterns({**OTHER_STEPS, **DEFAULT_METRICS, **plan.metrics})
        shown = sum(task.role in TRAINERS for task in plan.tasks)  # fewer than the run has, where only some hosts are shown
        trainers = max(shown, sum(len(plan.cluster.get(role, ())) for role in TRAINERS))
        self.shares_step = rules(plan.mode).shares_step and trainers > 1
        known, self.tasks = self.tasks, {}
        for planned in plan.tasks:
            task = known.get(planned.task) or TaskProgress(planned.task, planned.host, self._patterns)
            task.host, task.gpus, task.deciding = planned.host, planned.gpus, planned.deciding
            self.tasks[planned.task] = task
        for host in plan.hosts:
            self.host(host.host)

    def host(self, name: str) -> HostProgress:
        """The host of that name, added if it is new."""
        return self.hosts.setdefault(name, HostProgress(name))

    @property
    def job(self) -> str:
        return self.plan.job if self.plan else ""

    @property
    def mode(self) -> str:
        return self.plan.mode if self.plan else ""

    @property
    def started(self) -> float | None:
        return self.plan.created if self.plan else self.first_time

    def own_rate(self, task: TaskProgress) -> float | None:
        """Steps per second of the task's own; None where it does not print them."""
        return task.rate_of("local_step") if self.shares_step else task.rate

    def shared_rate(self, silent: Collection[str] = ()) -> float | None:
        """Steps per second of the shared step counter; None where there is none, or no rate is known. `silent`: tasks without
        output for long."""
        if not self.shares_step:
            return None
        reporting = [task for task in self.tasks.values() if not self.health(task)]
        rates = [0.0 if task.task in silent else task.rate_of("global_step") or task.rate for task in reporting]
        return max((rate for rate in rates if rate is not None), default=None)

    @property
    def own_metrics(self) -> list[str]:
        """The job's own metrics, then those that its tasks print beside them."""
        asked = self.plan.metrics if self.plan else {}
        printed = (name for task in self.tasks.values() for name in task.measures.names())
        return own_metrics(dict.fromkeys((*asked, *printed)))

    def gpu_use(self, task: TaskProgress) -> tuple[float | None, int | None]:
        """(percent busy, the mean of its GPUs; bytes in use in all of them). None: not measured, or it has none."""
        host = self.hosts.get(task.host)
        seen = [host.gpus[number] for number in task.gpus if number in host.gpus] if host and task.state == "running" else []
        busy = [percent for percent, _ in seen if percent is not None]
        memory = [used for _, used in seen if used is not None]
        return sum(busy) / len(busy) if busy else None, sum(memory) if memory else None

    @property
    def final(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def first_death(self) -> TaskProgress | None:
        """The task whose death came first: the cause; the others are collateral."""
        if self.state in ("succeeded", "stopped"):
            return None
        death = deaths.first(task.death for task in self.tasks.values() if task.dead)
        return self.tasks[death.task] if death else None

    @property
    def cause(self) -> str | None:
        """Why the run fails or failed, in words: as the operation reports it, else by the first death."""
        if self._cause or self.state in ("succeeded", "stopped"):
            return self._cause
        return task.death.words if (task := self.first_death) else None

    def health(self, task: TaskProgress) -> str | None:
        """ "unreachable", "stalled" or None. While the host cannot be reached, that hides a stall."""
        if task.state == "ended":
            return None
        host = self.hosts.get(task.host)
        return "unreachable" if host and host.state == "unreachable" else task.health

    def stalled_because(self, task: TaskProgress) -> str | None:
        """Why it is stalled, or was when its host last answered."""
        gone = self.health(task) == "unreachable"
        return None if task.state == "ended" else stall_words(task.health_reason, task.health_since, last_known=gone)

    def _task(self, event: Event) -> TaskProgress:
        name = event.task or event.data.get("task") or "?"
        task = self.tasks.get(name)
        if task is None:
            task = self.tasks[name] = TaskProgress(name, event.host, self._patterns)
        return task

    def _line(self, event: Event) -> None:
        task = self.tasks.get(event.task) if event.task else None
        if task is None:
            task = self._task(event)
        line = event.data["line"]
        task.lines += 1
        self.lines += 1
        task.last_time = event.time
        if line:
            if len(line) > MATCHED_CHARS:
                line = last_state(line)[:MATCHED_CHARS]
            task.last_raw = line
            task.measures.line(event.time, line)

    def _fold_step(self, event: Event) -> None:
        self.steps[event.data["step"]] = event.data.get("state", "begin")

    def _fold_host(self, event: Event) -> None:
        if event.host:
            host = self.host(event.host)
            host.state, host.text = event.data.get("state", ""), event.data.get("text")

    def _fold_transfer(self, event: Event) -> None:
        host, what = self.host(event.host or "?"), event.data.get("what", "")
        if what == "all":  # the sum of the others, sent once they are done
            host.synced = True
        else:
            host.transfer(what).apply(event.time, cast("TransferFields", event.data))

    def _fold_broadcast(self, event: Event) -> None:
        fields = cast("BroadcastFields", event.data)
        if fields["state"] == "moving":
            self.broadcasts[fields["what"]] = fields
        else:
            self.broadcasts.pop(fields["what"], None)

    def _fold_task(self, event: Event) -> None:
        self._task(event).apply(cast("TaskFields", event.data))

    def _fold_sample(self, event: Event) -> None:
        seen = convert(event.data, NewestSamples)
        self.host(event.host or "?").gpus = {number: (busy, used) for number, busy, used, _ in seen.host.gpus}
        for task in self.tasks.values():
            if task.host == event.host:
                sample = seen.tasks.get(task.task)
                task.cpu, task.memory = (sample.cpu, sample.memory) if sample else (None, None)
                if sample and sample.printed:
                    task.measures.take_written(sample.printed)

    def _fold_run(self, event: Event) -> None:
        self.state = event.data.get("state", self.state)
        keeps = self.final and self.state not in ("succeeded", "stopped")  # a run that goes on again has no cause any more
        self._cause = event.data.get("cause") or (self._cause if keeps else None)
        self.left_files = event.data.get("left_files") or self.left_files
        if self.final:
            self.ended = event.time

    def _fold_note(self, event: Event) -> None:
        self.notes.append((event.time, event.data.get("level", "info"), event.data.get("text", "")))

    def _fold_plan(self, event: Event) -> None:
        try:
            self.take_plan(plan_from_json(event.data))
        except msgspec.ValidationError:
            self.notes.append((event.time, "warning", "a plan that this tfdeploy cannot read was left out"))


_FOLDS = {
    "step": RunProgress._fold_step,
    "host": RunProgress._fold_host,
    "transfer": RunProgress._fold_transfer,
    "broadcast": RunProgress._fold_broadcast,
    "sample": RunProgress._fold_sample,
    "task": RunProgress._fold_task,
    "run": RunProgress._fold_run,
    "note": RunProgress._fold_note,
    "plan": RunProgress._fold_plan,
}
