"""Test which problems are listed for each task, and that the worst problem is listed first."""

from __future__ import annotations

import pytest

from support.recorded import fold_events
from support.screens import crash_loop, cut_host, many, straggler, waiting
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trends import SlowTask
from tfdeploy.model.progress.trouble import (
    AGAIN,
    CUT,
    FIRST,
    RUNNING,
    SLOW,
    STALLED,
    classify_tasks,
)


def progress_after(events: object) -> RunProgress:
    progress = RunProgress()
    fold_events(progress, events)  # type: ignore[arg-type]
    return progress


@pytest.mark.parametrize(
    ("events", "task", "rank", "state", "reason"),
    [
        (many, "worker:150", FIRST, "killed: 9", "likely out of memory: oom_kill"),
        (many, "worker:76", CUT, "unreachable", "no answer in 10 s"),
        (many, "worker:0", RUNNING, "running", ""),
        (cut_host, "worker:3", CUT, "unreachable", "no answer in 10 s"),
        (waiting, "worker:0", STALLED, "stalled", "waits for worker:2 on n4"),
        (
            crash_loop,
            "worker:3",
            AGAIN,
            "restarted",
            "3x, 0 s ago: failed: 1, FileNotFoundError: [Errno 2]",
        ),
    ],
)
def test_rank_and_reason_of_each_task(
    events: object, task: str, rank: int, state: str, reason: str
) -> None:
    progress = progress_after(events())  # type: ignore[operator]
    mark = classify_tasks(progress, {}, progress.latest or 0)[task]
    assert (mark.rank, mark.state, mark.needs_attention) == (rank, state, rank != RUNNING)
    assert mark.why.startswith(reason) and bool(mark.why) == bool(reason)


def test_old_restart_is_no_problem() -> None:
    progress = progress_after(crash_loop())
    assert classify_tasks(progress, {}, (progress.latest or 0) + 600)["worker:3"].rank == RUNNING


def test_slowness_is_least_problem() -> None:
    progress = progress_after(straggler())
    slow = {"worker:11": SlowTask("2.1x slower", "2.1x slower than the median")}
    mark = classify_tasks(progress, slow, progress.latest or 0)["worker:11"]
    assert (mark.rank, mark.state) == (SLOW, "2.1x slower")


def test_ended_tasks_of_stopped_run_are_no_problem() -> None:
    progress = progress_after(many())
    progress.state = "stopped"
    marks = classify_tasks(progress, {}, progress.latest or 0)
    assert not any(
        mark.needs_attention
        for name, mark in marks.items()
        if progress.tasks[name].state == "ended"
    )
    assert marks["worker:150"].state == "killed: 9"
