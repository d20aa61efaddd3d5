"""Test which curves and which attempts of tasks a report shows."""

from __future__ import annotations

from dataclasses import replace

from support.dashboard_scenes import PLAN, dying, training
from tfdeploy.model.answers.samples import TaskSample
from tfdeploy.model.report.run_report import RunReport, collect_attempts, report_charts
from tfdeploy.model.status.run_status import RunView
from tfdeploy.model.status.task_status import TaskView

VIEW = RunView(
    run="r1",
    job="digits",
    mode="async",
    state="running",
    started=1000.0,
    ended=None,
    tasks=(
        TaskView(
            task="worker:1",
            host="n3",
            state="running",
            address="",
            gpus=(),
            attempt=2,
            started=1050.0,
        ),
    ),
)
REPORT = RunReport(plan=PLAN, view=VIEW, made=1100.0)


def test_step_rate_over_at_least_half_minute() -> None:
    rows = [
        TaskSample(time=1000.0 + 10 * n, attempt=1, printed={"step": 50.0 * n}) for n in range(10)
    ]
    (chart,) = report_charts(replace(REPORT, tasks={"worker:1": rows}))
    assert chart.name == "steps/s" and {value for _, value in chart.lines[0].pieces[0]} == {5.0}


def test_curve_restarts_after_decreasing_step_or_new_attempt() -> None:
    steps = [(1, 0), (1, 100), (2, 50), (2, 150)]
    rows = [
        TaskSample(time=1000.0 + 10 * n, attempt=a, printed={"step": s})
        for n, (a, s) in enumerate(steps)
    ]
    (chart,) = report_charts(replace(REPORT, tasks={"worker:1": rows}))
    assert [[value for _, value in piece] for piece in chart.lines[0].pieces] == [[10.0], [10.0]]


def test_keras_progress_and_zeros_are_no_curves() -> None:
    printed = {
        "epoch": 1.0,
        "epochs": 3.0,
        "batch": 5.0,
        "batches": 10.0,
        "accuracy": 0.5,
        "zero": 0.0,
    }
    rows = [TaskSample(time=1000.0, attempt=1, printed=printed)]
    assert [chart.name for chart in report_charts(replace(REPORT, tasks={"worker:1": rows}))] == [
        "accuracy"
    ]


def test_attempts_from_events_and_last_attempt_from_host() -> None:
    task_attempts = collect_attempts(replace(REPORT, events=(*training(), *dying())))
    events = [
        (attempt.number, attempt.started, attempt.ended, attempt.outcome)
        for attempt in task_attempts
        if attempt.task == "worker:1"
    ]
    assert events == [(1, 1006.5, 1033.0, "failed"), (2, 1050.0, None, None)]
    # The tasks that the view selects come first in the list of attempts.
    assert task_attempts[0].task == "worker:1"
