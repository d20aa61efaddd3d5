"""Find tasks that train more slowly than the others, and a figure that says by how much. Pure.

If each task has its own steps, their rates are compared. Workers that share a step counter and
print no step of their own are compared by how fast they write lines, because they run the same
program. If all tasks make each step together, their rates are equal; then the task that keeps the
others waiting is the one that computes most.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from tfdeploy.model.modes import rules_of
from tfdeploy.model.progress.run_progress import TRAINERS, RunProgress
from tfdeploy.model.progress.task_progress import TaskProgress
from tfdeploy.model.progress.trends import LINES, Trends

SLOW = 1.5  # a task is slow if its figure differs from the median by at least this factor
FEWEST = 3  # tasks are compared only if there are at least this many
OVER_S = 60.0  # rates, and the use of GPUs and CPUs, are averaged over this time
SEEN_S = 15.0  # line rates are compared only if they cover at least this time
# A worker is stale if it is behind by at least the number of steps that the run makes in this time.
BEHIND_S = 30.0


class SlowTask(NamedTuple):
    """A slow task. `cell_text`, for a table cell: "2.1x slower". `text`: "2.1x slower than the
    median of 16 tasks"."""

    factor: float
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
    if lines is None or lines.times[-1] - lines.times[0] < SEEN_S:
        return None
    return lines.slope(OVER_S)


def _slower_than_median(rates: Mapping[str, float], basis: str) -> dict[str, SlowTask]:
    if len(rates) < FEWEST:
        return {}
    usual = median(rates.values())
    factors = {task: usual / rate for task, rate in rates.items() if rate > 0}
    than = f"slower than the median of {len(rates)} tasks{basis}"
    return {
        task: SlowTask(times, f"{times:.1f}x slower", f"{times:.1f}x {than}")
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
                    times, f"{times:.1f}x {label}", f"{reason} {times:.1f}x the median's {label}"
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
        task: SlowTask(
            steps / max(usual, 1),
            f"{steps:,} behind",
            f"{steps:,} steps behind the task with the most steps",
        )
        for task, steps in behind.items()
        if steps / rate >= BEHIND_S and steps > 3 * max(usual, 1)
    }
