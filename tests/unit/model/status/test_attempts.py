"""Test how the list of a task's attempts (first start and restarts) is made from events."""

from __future__ import annotations

from support.dashboard_scenes import PLAN
from support.recorded import fold_events
from support.screens import crash_loop
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.status.task_status import Attempt, with_inferred_end


def test_each_attempt_has_end_and_last_line() -> None:
    progress = RunProgress()
    fold_events(progress, crash_loop())
    task_attempts = progress.attempts_of("worker:3")
    assert [
        (attempt.number, attempt.ended is not None, attempt.end_text[:9])
        for attempt in task_attempts
    ] == [
        (1, True, "failed: 1"),
        (2, True, "failed: 1"),
        (3, True, "failed: 1"),
        (4, False, ""),
    ]
    assert task_attempts[0].end_text.endswith("No such file or directory: 'data/shard-3.npz'")


def test_description_names_signal_and_reason() -> None:
    killed = Attempt(
        task="worker:0",
        number=1,
        started=1.0,
        ended=2.0,
        outcome="killed",
        reason="oom_kill",
        signal=9,
    )
    assert killed.end_text == "killed: 9, oom_kill"


def attempt(number: int, start: float, end: float | None, outcome: str | None) -> Attempt:
    return Attempt(task="worker:0", number=number, started=start, ended=end, outcome=outcome)


def test_attempt_without_recorded_end_ends_when_next_begins() -> None:
    open_, following = attempt(1, 10.0, None, None), attempt(2, 20.0, None, None)
    assert (
        with_inferred_end(open_, following).ended == 20.0
        and with_inferred_end(open_, following).outcome == "lost"
    )
    assert with_inferred_end(open_, None) is open_
    done = attempt(1, 10.0, 15.0, "failed")
    assert with_inferred_end(done, following) is done


def test_reported_end_is_used_if_end_was_unknown() -> None:
    progress = RunProgress(PLAN)
    reported = {
        "worker:0": [attempt(1, 10.0, 15.0, "failed"), attempt(2, 16.0, None, None)],
        "gone:0": [],
    }
    assert [attempt.number for attempt in progress.merge_attempts(reported)] == [1]
    assert [attempt.number for attempt in progress.attempts_of("worker:0")] == [1, 2]
    assert progress.merge_attempts(reported) == []
