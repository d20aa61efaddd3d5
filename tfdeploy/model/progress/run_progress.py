"""Compute the progress of a run from its events. Also compute how much of the run is done, if its
goal is known from `--steps=2000` in its command or from Keras's `Epoch 3/40`.

The same events give the same state, live or replayed: this module reads no clock, and takes the
time from the events. Texts are not sanitised: they are as the hosts sent them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple, cast

import msgspec

from tfdeploy.agent.metric_lines import BATCH, BATCHES, EPOCH, EPOCHS, last_progress_state
from tfdeploy.agent.metric_names import sort_metrics
from tfdeploy.model.answers.samples import NewestSamples, extra_metrics
from tfdeploy.model.events import BroadcastFields, Event, TaskFields, TransferFields
from tfdeploy.model.modes import rules_of
from tfdeploy.model.progress.task_progress import HostProgress, TaskProgress, Transfer
from tfdeploy.model.status.task_status import (
    FINAL_STATES,
    Attempt,
    combine_gpu_use,
    earliest_death,
    make_task_death,
    merge_event_into_attempt,
    merge_recorded_attempts,
    with_inferred_end,
)
from tfdeploy.text.row_values import stall_words
from tfdeploy.text.typed import convert

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tfdeploy.model.plan import Plan

STEPS = ("lock", "probe", "plan", "sync", "prepare", "start", "commit")
TRAINERS = ("worker", "chief")
_KEPT_NOTES = 100  # the number of newest notes that are kept


class RunProgress:
    """The progress of one run. Call `apply_event` for each event in order, then read the fields.
    Not thread-safe: one thread must apply and read."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan: Plan | None = None
        self.run: str | None = None
        self.state = "starting"
        self.first_time: float | None = None
        self.latest: float | None = None  # the latest time of an event or line
        self.ended: float | None = None
        self.tasks: dict[str, TaskProgress] = {}
        self.hosts: dict[str, HostProgress] = {}
        # {what a running broadcast sends, such as "data digits": the last event of this broadcast}
        self.broadcasts: dict[str, BroadcastFields] = {}
        self.steps: dict[str, str] = {}  # {step of the launch: begin, done, failed}
        self.notes: deque[tuple[float, str, str]] = deque(maxlen=_KEPT_NOTES)  # time, level, text
        self.left_files: dict[str, list[str]] = {}
        # {(task, number of the attempt): attempt}
        self.attempts: dict[tuple[str, int], Attempt] = {}
        self.goal: int | None = None  # steps that the command requests; None: not known
        # True if several tasks train at their own pace and share one step counter. Then the step in
        # a task's line is the step of the whole run.
        self.shares_step = False
        self._cause: str | None = None
        if plan is not None:
            self.set_plan(plan)

    def apply_event(self, event: Event) -> None:
        self.latest = max(self.latest or 0.0, event.time)
        self.run = event.run or self.run
        if event.kind != "task":
            self.first_time = self.first_time or event.time
        getattr(self, f"_apply_{event.kind}")(event)

    def set_plan(self, plan: Plan) -> None:
        self.plan, self.run = plan, plan.run
        # If only some hosts are shown, `plan.tasks` has only their tasks. `plan.cluster` still has
        # the tasks of all hosts.
        shown = sum(task.role in TRAINERS for task in plan.tasks)
        trainers = max(shown, sum(len(plan.cluster.get(role, ())) for role in TRAINERS))
        self.shares_step = rules_of(plan.mode).shares_step and trainers > 1
        known, self.tasks = self.tasks, {}
        for planned in plan.tasks:
            name = planned.task
            task = known.get(name) or TaskProgress(name, planned.host)
            for field in ("host", "gpus", "deciding", "address"):
                setattr(task, field, getattr(planned, field))
            self.tasks[name] = task
        for host in plan.hosts:
            self.find_or_add_host(host.host)
        deciding = next((task.argv for task in plan.tasks if task.deciding), ())
        self.goal = requested_steps(deciding or plan.command)

    def find_or_add_host(self, name: str) -> HostProgress:
        """Return the host of that name; add it first if it is not known yet."""
        return self.hosts.setdefault(name, HostProgress(name))

    @property
    def started(self) -> float | None:
        return self.plan.created if self.plan else self.first_time

    def own_steps_per_s(self, task: TaskProgress) -> float | None:
        """Return the task's own steps per second; None if it does not print them."""
        return task.steps_per_s_of("local_step") if self.shares_step else task.steps_per_s

    def shared_steps_per_s(self, silent_tasks: Collection[str] = ()) -> float | None:
        """Return steps per second of the shared step counter, or None if there is no shared counter
        or no rate is known. `silent_tasks`: tasks that have written nothing for a long time; their
        rate is 0."""
        if not self.shares_step:
            return None
        rates = (
            0.0
            if task.task in silent_tasks
            else task.steps_per_s_of("global_step") or task.steps_per_s
            for task in self.tasks.values()
            if not self.health(task)
        )
        return max((rate for rate in rates if rate is not None), default=None)

    @property
    def lead_task(self) -> TaskProgress | None:
        """Return the first deciding task, that is, the first task whose outcome decides how the run
        ends. Return None before there is a plan."""
        return next((task for task in self.tasks.values() if task.deciding), None)

    @property
    def highest_step(self) -> int | None:
        """Return the highest step of all tasks that train, or None if no step is known. If a task
        prints both the shared counter and its own steps, the shared counter is used."""
        trainers = (
            task.measures.newest_values
            for task in self.tasks.values()
            if task.task.partition(":")[0] in TRAINERS
        )
        steps = (values.get("global_step", values.get("step")) for values in trainers)
        return max((int(step) for step in steps if step is not None), default=None)

    def run_steps_per_s(self, silent_tasks: Collection[str] = ()) -> float | None:
        """Return the run's steps per second. This is the rate of the step counter that the workers
        share. If there is no such counter, it is the rate of `lead_task`. `silent_tasks`: tasks
        that have written nothing for a long time; their rate is 0."""
        if self.shares_step:
            return self.shared_steps_per_s(silent_tasks)
        lead = self.lead_task
        if lead is None or self.health(lead) or lead.state != "running":
            return None
        return 0.0 if lead.task in silent_tasks else lead.steps_per_s

    @property
    def extra_metrics(self) -> list[str]:
        """Return names of metrics: first those that the job file defines, then those that only the
        tasks print or write. The second group is sorted by importance."""
        names = (name for task in self.tasks.values() for name in task.measures.newest_values)
        shown = extra_metrics(dict.fromkeys((*self.job_metrics, *names)))
        return sort_metrics(shown, self.job_metrics)

    @property
    def job_metrics(self) -> Collection[str]:
        """Return the names of the metrics for which the plan has a regular expression."""
        return self.plan.metrics if self.plan else ()

    def gpu_use(self, task: TaskProgress) -> tuple[float | None, int | None]:
        """Return (mean percent busy of the task's GPUs, bytes in use in all of them). A value is
        None if it was not measured or the task has no GPU."""
        host = self.hosts.get(task.host)
        if host is None or task.state != "running":
            return None, None
        return combine_gpu_use(host.gpus[number] for number in task.gpus if number in host.gpus)

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def first_death(self) -> TaskProgress | None:
        """Return the task that died first. Its death is the cause of the run's failure, and later
        deaths are consequences."""
        if self.state in ("succeeded", "stopped"):
            return None
        death = earliest_death(
            make_task_death(task) for task in self.tasks.values() if task.is_dead
        )
        return self.tasks[death.task] if death else None

    @property
    def cause(self) -> str | None:
        """Return why the run fails or failed: the cause that the operation reported, or else the
        first death."""
        if self._cause or self.state in ("succeeded", "stopped"):
            return self._cause
        return make_task_death(task).text if (task := self.first_death) else None

    def health(self, task: TaskProgress) -> str | None:
        """Return "unreachable" if the task's host is unreachable, "stalled" if the task is stalled,
        else None."""
        if task.state == "ended":
            return None
        host = self.hosts.get(task.host)
        return "unreachable" if host and host.state == "unreachable" else task.health

    def stalled_because(self, task: TaskProgress, now: float) -> str | None:
        """Return why the task is stalled, or was stalled when its host last answered, and for how
        long; None if it is not stalled. `now`: UTC seconds."""
        if task.state == "ended":
            return None
        is_unreachable = self.health(task) == "unreachable"
        return stall_words(
            task.health_reason, task.health_since, last_known=is_unreachable, now=now
        )

    def _find_or_add_task(self, name: str, host: str | None) -> TaskProgress:
        """Return the task of that name. If the name is not known yet, add such a task first."""
        task = self.tasks.get(name)
        if task is None:
            task = self.tasks[name] = TaskProgress(name, host or "?")
        return task

    def take_lines(
        self, task: str, host: str, time: float, newest: Sequence[str], count: int
    ) -> None:
        """Record `count` lines that a task wrote at one time. `newest` are the last of these
        lines."""
        writer = self._find_or_add_task(task, host)
        writer.lines += count
        writer.last_time = time
        self.latest = max(self.latest or 0.0, time)
        if line := next(filter(None, reversed(newest)), ""):
            writer.last_line = last_progress_state(line)

    def _apply_step(self, event: Event) -> None:
        self.steps[event.data["step"]] = event.data.get("state", "begin")

    def _apply_host(self, event: Event) -> None:
        if event.host:
            host = self.find_or_add_host(event.host)
            host.state, host.text = event.data.get("state", ""), event.data.get("text")

    def _apply_transfer(self, event: Event) -> None:
        host, what = self.find_or_add_host(event.host or "?"), event.data.get("what", "")
        # The transfer "all" is the sum of the other transfers. Its event comes when the others are
        # done.
        if what == "all":
            host.synced = True
        else:
            transfer = host.transfers.setdefault(what, Transfer(what))
            transfer.apply_event(event.time, cast("TransferFields", event.data))

    def _apply_broadcast(self, event: Event) -> None:
        fields = cast("BroadcastFields", event.data)
        if fields["state"] == "moving":
            self.broadcasts[fields["what"]] = fields
        else:
            self.broadcasts.pop(fields["what"], None)

    def _apply_task(self, event: Event) -> None:
        attempt = merge_event_into_attempt(event, self.attempts)
        task = self._find_or_add_task(event.task or event.data.get("task") or "?", event.host)
        if attempt is not None:
            before = self.attempts.get((task.task, task.attempt))
            if before is not None and attempt.number > before.number:
                self.attempts[task.task, task.attempt] = replace(before, last_line=task.last_line)
            self.attempts[attempt.task, attempt.number] = attempt
        task.apply_status(cast("TaskFields", event.data))

    def merge_attempts(self, recorded: Mapping[str, Sequence[Attempt]]) -> list[Attempt]:
        """Add the attempts that the hosts have recorded to the attempts that are known already.
        `recorded`: {task: its attempts}. Return the attempts whose end was not known before this
        call."""
        known_tasks = recorded.keys() & self.tasks.keys()
        return merge_recorded_attempts(
            self.attempts, {task: recorded[task] for task in known_tasks}
        )

    def attempts_of(self, task: str) -> list[Attempt]:
        task_attempts = (each for (name, _), each in sorted(self.attempts.items()) if name == task)
        return [
            with_inferred_end(each, self.attempts.get((task, each.number + 1)))
            for each in task_attempts
        ]

    def _apply_sample(self, event: Event) -> None:
        newest = convert(event.data, NewestSamples)
        host, rates = self.find_or_add_host(event.host or "?"), newest.host.rates
        host.gpus = {gpu.number: (gpu.busy, gpu.used_bytes) for gpu in newest.host.gpus}
        host.traffic = rates.get("received", 0) + rates.get("sent", 0) if rates else None
        for task in (each for each in self.tasks.values() if each.host == host.host):
            sample = newest.tasks.get(task.task)
            task.cpu, task.memory = (sample.cpu, sample.memory) if sample else (None, None)
            if sample and (sample.printed or sample.not_finite):
                task.take_sample(sample)

    def _apply_run(self, event: Event) -> None:
        self.state = event.data.get("state", self.state)
        # A run that is alive again after a failure has no cause any more. Only a run that has
        # failed or is lost keeps its cause.
        keeps = self.is_final and self.state not in ("succeeded", "stopped")
        self._cause = event.data.get("cause") or (self._cause if keeps else None)
        self.left_files = event.data.get("left_files") or self.left_files
        self.ended = event.data.get("ended") or event.time if self.is_final else None

    def _apply_note(self, event: Event) -> None:
        self.notes.append((event.time, event.data.get("level", "info"), event.data.get("text", "")))

    def _apply_plan(self, event: Event) -> None:
        try:
            # Imported only here, because a sync has no plan.
            from tfdeploy.model.plan import plan_from_json

            self.set_plan(plan_from_json(event.data))
        except msgspec.ValidationError:
            text = "a plan that this tfdeploy cannot read was left out"
            self.notes.append((event.time, "warning", text))


_COUNTED = "(?:steps?|iterations?|iters?)"
_GOAL = re.compile(
    rf"(?:(?:train|training|max|num|total|global|final|last|n)_{_COUNTED}|steps|iterations|iters)\Z"
)


def requested_steps(argv: Sequence[str]) -> int | None:
    """Return the number of training steps that a command requests. Return None if the command
    requests none, or two different numbers."""
    goals = set()
    for word, following in zip_longest(argv, argv[1:], fillvalue=""):
        name, given, text = word.partition("=")
        if not name.startswith("-") or not _GOAL.match(name.lstrip("-").replace("-", "_")):
            continue
        number = (text if given else following).replace("_", "").replace(",", "")
        if number.isdecimal() and 0 < int(number) < 10**13:
            goals.add(int(number))
    return goals.pop() if len(goals) == 1 else None


class RunCompletion(NamedTuple):
    """How much of a run is done. `fraction`: 0 to 1. `text`: "step 1,393 of 2,000", "epoch 3 of
    40"."""

    fraction: float
    text: str


def run_completion(progress: RunProgress) -> RunCompletion | None:
    """Return the completed fraction of the run. It is computed from the epoch of `lead_task` or, if
    this epoch is not known, from the highest step of all tasks. Return None if neither the number
    of epochs nor the number of steps to reach is known."""
    lead = progress.lead_task
    if lead is None:
        return None
    values = lead.measures.newest_values
    epoch, epochs = values.get(EPOCH), values.get(EPOCHS)
    if epoch and epochs and epoch <= epochs:
        batch, batches = values.get(BATCH, 0.0), values.get(BATCHES, 0.0)
        part = (epoch - 1 + (min(1.0, batch / batches) if batches else 0.0)) / epochs
        return RunCompletion(part, f"epoch {epoch:.0f} of {epochs:.0f}")
    goal, step = progress.goal, progress.highest_step
    if goal is None or step is None:
        return None
    return RunCompletion(min(1.0, step / goal), f"step {step:,} of {goal:,}")
