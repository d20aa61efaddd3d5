"""Keep the history of a run's metrics and use of resources, per task and for the whole run, in
bounded memory. From this history, find the tasks that train more slowly than the others, and how
much slower they are. This module reads no clock.

When a series has MOST points, every second point is dropped, and later points are twice as far
apart.

Tasks that have steps of their own are compared by the rates of these steps. Workers that share a
step counter and print no step of their own are compared by how fast they write lines, because they
run the same program. If all tasks make each step together, their rates are equal. Then the task
that uses its GPUs or CPUs most is likely the slowest, because the others wait for it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from tfdeploy.model.answers.samples import STANDARD_METRICS, HostSample, TaskSample
from tfdeploy.model.modes import rules_of
from tfdeploy.model.progress.run_progress import TRAINERS, RunProgress, run_completion
from tfdeploy.model.progress.task_progress import TaskProgress
from tfdeploy.model.status.task_status import Samples, combine_gpu_use

MOST = 256  # the most points of a series
APART_S = 1.0  # the shortest time in seconds between two updates
LINES = "lines"  # the name of the trend that counts the lines that a task has written so far
PACE = "pace"  # the name of the trend of a task's own steps per second
USES = ("cpu", "memory", "gpu", "gpu memory")
# DONE: the fraction of the run that is done, 0 to 1
STEP, LOSS, RATE, DONE = "step", "loss", "steps/s", "done"
RUN = ""  # the name under which the run's own trends are stored among those of tasks


class Trend:
    """Points (time, value), sorted by time. If a new point follows the last point too soon, the new
    value replaces the last value."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.values: list[float] = []
        self._apart_s = 0.0

    def add(self, time: float, value: float) -> None:
        if not math.isfinite(value) or (self.times and time < self.times[-1]):
            return
        if self.times and time - self.times[-1] < self._apart_s:
            self.values[-1] = value
            return
        self.times.append(time)
        self.values.append(value)
        if len(self.times) >= MOST:
            self.times, self.values = self.times[::2], self.values[::2]
            self._apart_s = (self.times[-1] - self.times[0]) / MOST

    def prepend(self, points: Iterable[tuple[float, float]]) -> None:
        """Insert older points before the known ones."""
        known = self.points
        first = known[0][0] if known else math.inf
        self.__init__()  # type: ignore[misc]
        for time, value in [*(point for point in points if point[0] < first), *known]:
            self.add(time, value)

    @property
    def points(self) -> list[tuple[float, float]]:
        return list(zip(self.times, self.values, strict=True))

    def slope(self, over_s: float) -> float | None:
        """Return the change per second over the last `over_s` seconds; None if there are fewer than
        two points. If the value fell, only the points after the last fall count."""
        first = max(0, bisect_left(self.times, self.times[-1] - over_s)) if self.times else 0
        for index in range(len(self.values) - 1, first, -1):
            if self.values[index] < self.values[index - 1]:
                first = index
                break
        if len(self.times) - first < 2:
            return None
        return (self.values[-1] - self.values[first]) / (self.times[-1] - self.times[first])

    def mean(self, over_s: float) -> float | None:
        """Return the mean of the points of the last `over_s` seconds; None if there are no
        points."""
        first = bisect_left(self.times, self.times[-1] - over_s) if self.times else 0
        return sum(self.values[first:]) / len(self.values[first:]) if self.times else None


class Trends:
    """The trends of a run. `printed`: {task: {metric: trend}}. `used`: {task: {name: trend}}; the
    names are LINES, PACE and those in USES. The run's own trends STEP, LOSS, RATE and DONE are in
    `printed`, under RUN instead of a task."""

    def __init__(self) -> None:
        self.printed: dict[str, dict[str, Trend]] = {}
        self.used: dict[str, dict[str, Trend]] = {}
        self._updated: float | None = None

    def update(self, progress: RunProgress, now: float) -> None:
        """Add the values that are known at `now` (seconds) to the trends, at most once in APART_S
        seconds."""
        if self._updated is not None and 0 <= now - self._updated < APART_S:
            return
        self._updated = now
        for name, task in progress.tasks.items():
            if task.state == "running" and not progress.health(task):
                self._add_task(name, task, progress, now)
        self._add_run(progress, now)

    def trend(self, task: str, name: str) -> Trend | None:
        """Return the task's trend with this name: a metric's name, LINES, PACE or one of USES."""
        return self.printed.get(task, {}).get(name) or self.used.get(task, {}).get(name)

    def add_past_samples(self, recorded: Samples, run: RunProgress) -> None:
        """Insert the samples that the hosts recorded earlier."""
        for name, samples in recorded.tasks.items():
            if task := run.tasks.get(name):
                self._prepend_older_samples(
                    name, samples, recorded.hosts.get(task.host, []), task.gpus
                )
        lead_samples = recorded.tasks.get(run.lead_task.task, []) if run.lead_task else []
        for metric in (STEP, LOSS):
            _find_or_add_trend(self.printed, RUN, metric).prepend(
                _points_of_metric(lead_samples, metric)
            )

    def _prepend_older_samples(
        self, name: str, samples: list[TaskSample], host: list[HostSample], gpus: tuple[int, ...]
    ) -> None:
        for metric in dict.fromkeys(metric for sample in samples for metric in sample.printed):
            _find_or_add_trend(self.printed, name, metric).prepend(
                _points_of_metric(samples, metric)
            )
        task_rows = [(each.time, each.cpu, each.memory) for each in samples]
        gpu_rows = []
        for each in host:
            used = ((gpu.busy, gpu.used_bytes) for gpu in each.gpus if gpu.number in gpus)
            gpu_rows.append((each.time, *combine_gpu_use(used)))
        for rows, uses in ((task_rows, USES[:2]), (gpu_rows, USES[2:])):
            for column, use in enumerate(uses, 1):
                values = ((row[0], row[column]) for row in rows)
                points = [(time, float(value)) for time, value in values if value is not None]
                if points:
                    _find_or_add_trend(self.used, name, use).prepend(points)

    def _add_task(self, name: str, task: TaskProgress, progress: RunProgress, now: float) -> None:
        for metric, value in task.measures.newest_values.items():
            if metric in (STEP, LOSS) or metric not in STANDARD_METRICS:
                _find_or_add_trend(self.printed, name, metric).add(now, value)
        busy, memory = progress.gpu_use(task)
        figures = (task.lines, progress.own_steps_per_s(task), task.cpu, task.memory, busy, memory)
        for use, used in zip((LINES, PACE, *USES), figures, strict=True):
            if used is not None:
                _find_or_add_trend(self.used, name, use).add(now, float(used))

    def _add_run(self, progress: RunProgress, now: float) -> None:
        done = run_completion(progress)
        lead = progress.lead_task
        figures = {
            STEP: progress.highest_step,
            RATE: progress.run_steps_per_s(),
            DONE: done.fraction if done else None,
            LOSS: lead.measures.newest_values.get(LOSS) if lead else None,
        }
        for name, value in figures.items():
            if value is not None:
                _find_or_add_trend(self.printed, RUN, name).add(now, float(value))


def _points_of_metric(samples: Iterable[TaskSample], metric: str) -> list[tuple[float, float]]:
    return [(each.time, each.printed[metric]) for each in samples if metric in each.printed]


def _find_or_add_trend(trends: dict[str, dict[str, Trend]], task: str, name: str) -> Trend:
    return trends.setdefault(task, {}).setdefault(name, Trend())


SLOW = 1.5  # a task is slow if its rate or use differs from the median by at least this factor
FEWEST = 3  # tasks are compared only if there are at least this many
OVER_S = 60.0  # rates, and the use of GPUs and CPUs, are averaged over this time
SEEN_S = 15.0  # rates of lines are compared only if the lines cover at least this time
# A worker is far behind if it lacks at least the number of steps that the run makes in this time.
BEHIND_S = 30.0


class SlowTask(NamedTuple):
    """A slow task. `cell_text`, for a table cell: "2.1x slower". `text`: "2.1x slower than the
    median of 16 tasks"."""

    cell_text: str
    text: str


def find_slow_tasks(progress: RunProgress, trends: Trends) -> dict[str, SlowTask]:
    """Return the slow tasks by name. Only running tasks whose hosts answer are compared."""
    trainers = [
        task
        for task in progress.tasks.values()
        if task.state == "running"
        and not progress.health(task)
        and task.task.partition(":")[0] in TRAINERS
    ]
    if len(trainers) < FEWEST:
        return {}
    if progress.plan is not None and rules_of(progress.plan.mode).lockstep:
        return _busier_than_median(trainers, trends)
    rates = {
        task.task: rate for task in trainers if (rate := progress.own_steps_per_s(task)) is not None
    }
    if len(rates) >= FEWEST:
        return _slower_than_median(rates, "")
    if not progress.shares_step:
        return {}
    paces = {
        task.task: pace for task in trainers if (pace := _lines_per_s(task, trends)) is not None
    }
    return {
        **_far_behind(trainers, progress),
        **_slower_than_median(paces, ", measured by the lines that the task writes"),
    }


def _lines_per_s(task: TaskProgress, trends: Trends) -> float | None:
    lines = trends.trend(task.task, LINES)
    # The lines that a program writes when it starts say nothing about its pace.
    began = (task.started or 0.0) + OVER_S if task.attempt > 1 else 0.0
    if lines is None or lines.times[-1] - max(began, lines.times[0]) < SEEN_S:
        return None
    return lines.slope(OVER_S)


def _slower_than_median(rate_by_task: Mapping[str, float], basis: str) -> dict[str, SlowTask]:
    if len(rate_by_task) < FEWEST:
        return {}
    usual = median(rate_by_task.values())
    factors = {task: usual / rate for task, rate in rate_by_task.items() if rate > 0}
    than = f"slower than the median of {len(rate_by_task)} tasks{basis}"
    return {
        task: SlowTask(f"{times:.1f}x slower", f"{times:.1f}x {than}")
        for task, times in factors.items()
        if times >= SLOW
    }


def _busier_than_median(trainers: list[TaskProgress], trends: Trends) -> dict[str, SlowTask]:
    """Return the tasks that use their GPUs (or, without GPUs, their CPUs) much more than the median
    task. All tasks make each step together, so such a task keeps the others waiting."""
    for use, label in (("gpu", "GPU"), ("cpu", "CPU")):
        means = {
            task.task: mean
            for task in trainers
            if (trend := trends.trend(task.task, use)) and (mean := trend.mean(OVER_S))
        }
        if len(means) >= FEWEST:
            usual = median(means.values())
            factors = {task: mean / usual for task, mean in means.items()}
            reason = "likely slowest: uses"
            return {
                task: SlowTask(
                    f"{times:.1f}x {label}", f"{reason} {times:.1f}x the median's {label}"
                )
                for task, times in factors.items()
                if times >= SLOW
            }
    return {}


def _far_behind(trainers: list[TaskProgress], progress: RunProgress) -> dict[str, SlowTask]:
    """Return the workers whose last known step is far behind the highest step of the run."""
    rate, highest = progress.shared_steps_per_s(), progress.highest_step
    if not rate or highest is None:
        return {}
    behind = {task.task: highest - task.step for task in trainers if task.step is not None}
    if len(behind) < FEWEST:
        return {}
    usual = median(behind.values())
    return {
        task: SlowTask(f"{steps:,} behind", f"{steps:,} steps behind the task with the most steps")
        for task, steps in behind.items()
        if steps / rate >= BEHIND_S and steps > 3 * max(usual, 1)
    }
