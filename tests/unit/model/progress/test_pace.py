"""Test which tasks are reported as slower than the others, and how much slower they are."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from support.dashboard_scenes import PLAN, event, line
from support.recorded import fold_events
from tfdeploy.model.events import Event
from tfdeploy.model.plan import Plan
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trends import Trends, find_slow_tasks


def slow_words(
    plan: Plan,
    say: Callable[[int, int], str | None],
    *,
    cpu: Callable[[int], float] | None = None,
    restarted: Collection[int] = (),
) -> dict[str, str]:
    """Return the tasks that count as slow after a minute of simulated output.

    Once a second, worker N prints the text `say(N, second)`. It uses `cpu(N)` CPU cores. Half a
    minute before the end, the workers with the numbers `restarted` start again.
    """
    progress, trends = RunProgress(plan), Trends()
    workers = [task for task in plan.tasks if task.role == "worker"]
    events: list[Event] = [
        event("task", 1000.0, task.host, task.task, state="running", attempt=1) for task in workers
    ]
    for second in range(60):
        for number, task in enumerate(workers):
            if second == 30 and number in restarted:
                status = {"state": "running", "attempt": 2, "started": 1030.5}
                events.append(event("task", 1030.5, task.host, task.task, **status))
            text = say(number, second)
            events += [] if text is None else [line(1001.0 + second, task.task, text, plan)]
            if cpu is not None and second % 10 == 0:
                time = 1001.0 + second
                data = {
                    "host": {"time": time},
                    "tasks": {task.task: {"time": time, "attempt": 1, "cpu": cpu(number)}},
                }
                events.append(
                    Event(kind="sample", time=time, run=plan.run, host=task.host, data=data)
                )
    for sample_event in events:
        fold_events(progress, [sample_event])
        trends.update(progress, sample_event.time)
    return {task: slow_task.text for task, slow_task in find_slow_tasks(progress, trends).items()}


def own(number: int, second: int) -> str:
    return f"local_step={second * (4 if number == 2 else 10)}, global_step {second * 60}"


def shared(number: int, second: int) -> str | None:
    return f"step {second * 60} loss 1.0" if number != 2 or second % 3 == 0 else None


def test_workers_are_compared_by_own_steps() -> None:
    assert slow_words(PLAN, own) == {"worker:2": "2.5x slower than the median of 7 tasks"}


def test_workers_are_compared_by_lines_if_they_print_only_shared_step() -> None:
    slow_tasks = slow_words(PLAN, shared)
    assert list(slow_tasks) == ["worker:2"]
    assert slow_tasks["worker:2"].endswith(
        "slower than the median of 7 tasks, measured by the lines that the task writes"
    )


def test_lines_of_restarted_workers_make_no_other_look_slow() -> None:
    def say(number: int, second: int) -> str | None:
        is_restarted = number < 4 and second >= 30
        return f"step {second * 60} loss 1.0" if is_restarted or second % 3 == 0 else None

    assert slow_words(PLAN, say, restarted=range(4)) == {}
    assert set(slow_words(PLAN, say)) == {"worker:4", "worker:5", "worker:6"}


def test_worker_far_behind_is_stale() -> None:
    slow_tasks = slow_words(
        PLAN,
        lambda number, second: (
            f"step {second * 60}" if number != 2 or second < 10 else "still here"
        ),
    )
    assert slow_tasks == {"worker:2": "3,000 steps behind the task with the most steps"}


def test_two_workers_are_not_compared() -> None:
    assert slow_words(replace(PLAN, tasks=PLAN.tasks[:3]), own) == {}


def test_in_synchronous_training_busiest_worker_delays_others() -> None:
    plan = replace(PLAN, mode="mirrored")
    slow_tasks = slow_words(
        plan,
        lambda number, second: f"step {second}",
        cpu=lambda number: 3.0 if number == 4 else 1.5,
    )
    assert slow_tasks == {"worker:4": "likely slowest: uses 2.0x the median's CPU"}
    # In mode mirrored, all workers step together, so no worker is reported as slower than others.
    assert slow_words(plan, own) == {}
