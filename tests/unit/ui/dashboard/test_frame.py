"""Test frames of the dashboard (the contents of its screen) as text, at many sizes: the layout, and
that each row is as wide as the screen.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.dashboard_scenes import (
    PLAN,
    RUN,
    dying,
    ended,
    event,
    line,
    plan_of,
    sampled,
    syncing,
    training,
)
from support.recorded import replay_to_view
from support.rows import row_text
from tfdeploy.model.events import Event
from tfdeploy.model.plan import Plan
from tfdeploy.ui.dashboard.dashboard import Dashboard
from tfdeploy.ui.dashboard.frame import compose_frame
from tfdeploy.ui.summary import show_summary
from tfdeploy.ui.tables import cell_width
from tfdeploy.ui.terminal import Terminal


def dashboard_of(*parts: Iterable[Event], plan: Plan | None = None) -> Dashboard:
    dashboard = Dashboard(plan)
    for part in parts:
        for next_event in part:
            replay_to_view(dashboard, next_event)
            dashboard.apply_events()
            dashboard.ring.record_arrivals(next_event.time)
    return dashboard


def draw_rows(dashboard: Dashboard, width: int, height: int) -> list[str]:
    rows = compose_frame(dashboard.scene, width, height, (dashboard.progress.latest or 0) + 1)
    texts = [row_text(row) for row in rows]
    assert len(texts) == height
    assert all(cell_width(text) == width and text.isprintable() for text in texts)
    return [text.rstrip() for text in texts]


def squeeze_spaces(row: str) -> str:
    return " ".join(row.split())


def test_frame_of_sync() -> None:
    rows = draw_rows(dashboard_of(syncing()), 110, 20)
    assert rows[0].startswith(
        "starting 4 s  digits-20261121-101500-3fa1  async  0/8 running  8/8 hosts up"
    )
    assert (
        rows[1]
        == "lock probe plan sync... prepare start commit  60 MB of 300 MB, 30 MB/s, 8.0 s left"
    )
    assert squeeze_spaces(rows[3]).startswith(
        "ps:0 pending n1 n1:2222 code, 12 MB of 60 MB, 6.0 MB/s,"
    )


def test_table_has_hosts_before_plan() -> None:
    dashboard = dashboard_of(
        [event("host", 1000.0, "n1", state="unreachable", text="no answer in 10 s")]
    )
    rows = draw_rows(dashboard, 80, 12)
    assert "- unreachable n1 no answer in 10 s" in map(squeeze_spaces, rows)


def test_frame_of_training() -> None:
    rows = draw_rows(dashboard_of(syncing(), training()), 110, 24)
    assert rows[0].startswith(f"running 33 s  {RUN}  async")
    # All tasks share the same steps, so only the title shows the rate.
    assert rows[0].endswith("8/8 running  8/8 hosts up  70 steps/s in all")
    assert (
        squeeze_spaces(rows[1]) == "task state host gpu step loss trend age address pid last line"
    )
    assert squeeze_spaces(rows[2]) == "ps:0 running n1 now n1:2222 4242 WARNING: something"
    row = "worker:0 running n2 gpu 0 1393 0.015 ________ now n2:2222 4242 step 1393 loss: 0.01..."
    assert re.sub(r"[_.=+*%#-]{8}", "________", squeeze_spaces(rows[3]), count=1) == row
    assert rows[-2] == "ps:0@n1     | WARNING: something"
    assert rows[-3] == "worker:2@n4 | step 1393 loss: 0.0150 [/x]"


def test_death_is_shown_at_top_with_last_line_and_command() -> None:
    rows = draw_rows(dashboard_of(syncing(), training(), dying()), 110, 24)
    assert rows[0].startswith("failing ")
    assert rows[1] == "worker:1 on n3 failed with exit code 1  ValueError: bad shard digits-003"
    assert rows[2] == "look: `tfdeploy logs digits-20261121-101500-3fa1 --task worker:1 -n 50`"
    red = compose_frame(dashboard_of(syncing(), training(), dying()).scene, 110, 24, 1040.0)[1][0]
    assert red.style == "bold red"
    assert draw_rows(dashboard_of(syncing(), training(), dying(), ended()), 110, 24)[0].startswith(
        "failed 34 s"
    )


def test_smallest_screen_shows_cause() -> None:
    assert draw_rows(dashboard_of(syncing(), training(), dying()), 20, 6) == [
        "failing 35 s  digits",
        "worker:1 on n3 faile",
        "worker:1 failed: 1",
        "worker:1@n3 | ValueE",
        "tfdeploy    | ps:0@n",
        "q leave   ? help",
    ]


DASHBOARDS = [
    dashboard_of([]),
    dashboard_of(syncing()),
    dashboard_of(syncing(), training()),
    dashboard_of(syncing(), training(), dying()),
]


@given(st.sampled_from(DASHBOARDS), st.integers(1, 250), st.integers(1, 80))
def test_rows_fit_any_size(dashboard: Dashboard, width: int, height: int) -> None:
    draw_rows(dashboard, width, height)


@given(st.text(st.characters(categories=None), max_size=60), st.integers(5, 120))
@example("\ud800", 5)
def test_rows_fit_with_foreign_text(text: str, width: int) -> None:
    cause = event("run", 1002.0, state="failed", cause=text)
    draw_rows(
        dashboard_of(training(), [line(1040.0, "worker:0", text), line(1041.0, text, text), cause]),
        width,
        20,
    )


def test_table_scrolls_to_chosen_task() -> None:
    dashboard = Dashboard(plan_of(255))
    for next_event in training(plan_of(255)):
        replay_to_view(dashboard, next_event)
    dashboard.apply_events()
    rows = draw_rows(dashboard, 80, 24)
    assert squeeze_spaces(rows[3]).startswith("worker:[0-254] running 255 hosts")
    dashboard.view.handle_key("e")
    rows = draw_rows(dashboard, 80, 24)
    assert sum(" running" in row for row in rows[2:12]) >= 8
    assert "+247 more" in rows
    for _ in range(200):
        dashboard.view.handle_key("down")
    assert any(row.startswith("worker:198") for row in draw_rows(dashboard, 80, 24))
    for _ in range(300):
        dashboard.view.handle_key("up")
    assert any(row.startswith("ps:0") for row in draw_rows(dashboard, 80, 24))


@pytest.mark.fault("47 very many tasks: the dead one is in sight")
def test_dead_task_among_many_is_visible() -> None:
    dashboard = Dashboard(plan_of(255))
    dashboard(
        event(
            "task",
            1010.0,
            "n151",
            "worker:149",
            state="ended",
            attempt=1,
            outcome="killed",
            signal=9,
            ended=1009.0,
        )
    )
    dashboard.apply_events()
    assert any(
        squeeze_spaces(row).startswith("worker:149 killed: 9 n151")
        for row in draw_rows(dashboard, 100, 16)
    )


def test_task_with_much_output_does_not_displace_quiet_one() -> None:
    dashboard = dashboard_of(syncing(), training())
    dashboard.ring.record_arrivals(1040.0)
    replay_to_view(dashboard, line(1040.0, "worker:5", "I am quiet"))
    for number in range(50_000):
        replay_to_view(dashboard, line(1041.0, "worker:0", f"step {number}"))
        if not number % 10_000:
            dashboard.apply_events()
    dashboard.apply_events()
    rows = draw_rows(dashboard, 100, 24)
    assert "worker:5@n7 | I am quiet" in rows
    assert rows[-2] == "worker:0@n2 | step 49999"
    assert any("older lines no longer in memory" in row for row in rows)


def test_silence_of_running_task_is_shown() -> None:
    alone = replace(PLAN, mode="sync")
    dashboard = dashboard_of(training(alone), plan=alone)
    dashboard.scene.quiet_s_by_task["worker:0"] = 185.0
    row = next(row for row in draw_rows(dashboard, 120, 24) if "(quiet 3:05) step 1393" in row)
    before = next(
        row
        for row in draw_rows(dashboard_of(training(alone), plan=alone), 120, 24)
        if row.startswith("worker:0 ")
    )
    assert row.split()[:6] == before.split()[:6]
    assert (row.split()[6], before.split()[6]) == ("0", "70")
    assert "3m" in row.split()


def test_single_shown_worker_of_many_has_no_own_rate() -> None:
    part = replace(
        PLAN, tasks=PLAN.tasks[1:2], cluster={"ps": ("n1:2222",), "worker": ("n2:2222", "n3:2222")}
    )
    rows = draw_rows(dashboard_of(training(part), plan=part), 120, 24)
    assert rows[0].endswith("70 steps/s in all") and "steps/s" not in rows[1]


def test_silent_run_has_no_step_rate() -> None:
    dashboard = dashboard_of(syncing(), training())
    dashboard.scene.quiet_s_by_task.update(dict.fromkeys(dashboard.progress.tasks, 185.0))
    assert "  0 steps/s in all" in draw_rows(dashboard, 120, 24)[0]


@pytest.mark.parametrize(
    "text",
    [
        "1480: Worker 0: training step {own} done (global step: {all})",
        "global_step {all}, local_step={own}",
        "step {all} local step: {own}",
    ],
)
def test_worker_that_prints_own_step_has_own_rate(text: str) -> None:
    lines = [
        line(1012.0 + i / 10, f"worker:{second}", text.format(own=i * (second + 1), all=i * 3))
        for i in range(200)
        for second in range(2)
    ]
    running = [
        event("task", 1007.0, f"n{second + 2}", f"worker:{second}", state="running", attempt=1)
        for second in range(2)
    ]
    running.append(event("run", 1012.0, state="running"))
    rows = draw_rows(dashboard_of(running, lines, plan=plan_of(2)), 140, 24)
    assert rows[0].endswith("30 steps/s in all")
    assert squeeze_spaces(rows[1]).startswith("task state host gpu step steps/s")
    paces = [row.split()[6] for row in rows[3:5]]
    assert paces == ["10", "20"]


def test_metrics_of_job_are_shown() -> None:
    plan = replace(
        PLAN,
        metrics={"step": r"step (\d+)", "accuracy": r"accuracy=([\d.]+)", "lr": r"lr=([\d.e-]+)"},
    )
    lines = [line(1040.0, "worker:0", "step 7 accuracy=0.91 lr=1e-3")]
    dashboard = dashboard_of(training(plan), lines, plan=plan)
    rows = draw_rows(dashboard, 150, 24)
    assert "loss trend metrics" in squeeze_spaces(rows[1])
    assert "accuracy 0.91, lr 0.001" in next(row for row in rows if row.startswith("worker:0 "))
    # On a narrow screen, the other columns need the space.
    assert "metrics" not in draw_rows(dashboard, 60, 24)[1]
    out = io.StringIO()
    dashboard.progress.apply_event(event("run", 1041.0, state="succeeded"))
    show_summary(
        Terminal(out, None, False), dashboard.progress, now=dashboard.progress.latest or 0.0
    )
    assert "worker:0@n2: step 7, loss 0.015, accuracy 0.91, lr 0.001" in out.getvalue()


def test_head_row_has_run_on_narrow_screen() -> None:
    plan = replace(PLAN, job="mnist")
    rows = draw_rows(dashboard_of(training(plan), plan=plan), 80, 24)
    assert rows[0].startswith(f"running 33 s  mnist  {RUN}  8/8 running")
    named = dashboard_of(training(), plan=PLAN)
    named.progress.run = "first"
    assert draw_rows(named, 80, 24)[0].startswith("running 33 s  digits  first  async  8/8 running")


def test_task_page_says_what_follows_its_death() -> None:
    for on_death, text in (
        ("", "the run fails"),
        ("alone", "only this task starts again"),
        ("gang", "all tasks that restart together start again"),
    ):
        plan = replace(PLAN, tasks=tuple(replace(task, on_death=on_death) for task in PLAN.tasks))
        dashboard = dashboard_of(training(plan), plan=plan)
        draw_rows(dashboard, 100, 24)
        dashboard.scene.view.handle_key("enter")
        rows = [row_text(row) for row in compose_frame(dashboard.scene, 100, 400, 1051.0)]
        assert f"  on death: {text}" in map(str.rstrip, rows)


def test_event_files_give_step_loss_rate_and_curves_of_other_scalars() -> None:
    layers = {f"logs/layer{number}/weights/summaries/mean_1": 0.5 for number in range(20)}
    rates = {"logs/global_step/sec": 45.25, "logs/Variable_4/sec": 0.0}
    dashboard = dashboard_of([event for event in training() if event.kind != "line"])
    for time in (1040.0, 1050.0):
        metrics = {"step": time, "loss": 0.25, **layers, **rates, "logs/lr": 0.5}
        row = {"time": time, "printed": metrics, "step_time": time - 3.0}
        data = {"host": {"time": time}, "tasks": {"worker:0": row}}
        dashboard.progress.apply_event(Event(kind="sample", time=time, host="n2", data=data))
        dashboard.scene.trends.update(dashboard.progress, time)
    rows = draw_rows(dashboard, 200, 24)
    row = next(row for row in rows if row.startswith("worker:0 "))
    assert squeeze_spaces(row).partition("n2")[2].split()[:3] == ["1050", "1", "0.25"]
    # The rate is shown in its own column, so it is not repeated in the column of metrics.
    assert "mean" not in row and "Variable" not in row and "45.25" not in row
    dashboard.scene.view.handle_key("c")
    text = "\n".join(map(row_text, compose_frame(dashboard.scene, 90, 400, 1051.0)))
    assert text.index("logs/lr") < text.index("mean_1") and "logs/global_step/sec" in text


@pytest.mark.parametrize(
    ("parts", "text"),
    [((training,), "running for 1:28"), ((training, dying, ended), "failed after 28 s")],
)
def test_summary_has_duration_of_run(parts: tuple[Any, ...], text: str) -> None:
    """Test that the duration of a live run is counted up to now, and not only up to its last event,
    because a run may cause no events for a long time.
    """
    out = io.StringIO()
    dashboard = dashboard_of(*(part() for part in parts))
    show_summary(
        Terminal(out, None, False), dashboard.progress, now=(dashboard.progress.started or 0) + 88.0
    )
    assert text in out.getvalue().splitlines()[0]


def test_filter_without_match_is_reported() -> None:
    dashboard = dashboard_of(syncing(), training())
    for key in ("/", *"nowhere", "enter"):
        dashboard.scene.view.handle_key(key)
    assert any(
        "lines in memory contains 'nowhere'; Esc removes the filter" in row
        for row in draw_rows(dashboard, 120, 24)
    )


def test_blocked_terminal_uses_bounded_memory() -> None:
    dashboard = Dashboard(PLAN)
    for _ in range(100_000):
        replay_to_view(dashboard, line(1.0, "worker:0", "x"))
    dashboard(event("run", 2.0, state="succeeded"))
    assert len(dashboard._queue) < 21_000
    dashboard.apply_events()
    assert dashboard.progress.state == "succeeded"
    assert dashboard.ring.count == 100_001


def test_use_of_resources_is_shown_if_it_fits() -> None:
    dashboard = dashboard_of(syncing(), training(), sampled())
    rows = draw_rows(dashboard, 150, 24)
    head = next(row for row in rows if row.startswith("task"))
    assert squeeze_spaces(head).startswith("task state host gpu cpu memory step")
    assert "89% 12 GB 125% 2.1 GB" in squeeze_spaces(
        next(row for row in rows if row.startswith("worker:0"))
    )
    assert "25% 1.1 GB" in squeeze_spaces(next(row for row in rows if row.startswith("ps:0")))
    assert "cpu" not in squeeze_spaces(
        next(row for row in draw_rows(dashboard, 60, 24) if row.startswith("task"))
    )
