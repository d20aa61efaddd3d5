"""Frames as text, at many sizes: what stands where, and that every row is exactly as wide as the screen."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from dashboard_scenes import PLAN, dying, ended, event, line, plan_of, syncing, training
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdeploy.model.events import Event
from tfdeploy.ui.dashboard import Dashboard
from tfdeploy.ui.frame import compose
from tfdeploy.ui.pieces import row_text
from tfdeploy.ui.tables import cells


def dashboard_of(*parts: Iterable[Event]) -> Dashboard:
    dashboard = Dashboard()
    for part in parts:
        for one in part:
            dashboard(one)
            dashboard.take()
            dashboard.ring.mark(one.time)
    return dashboard


def drawn(dashboard: Dashboard, width: int, height: int) -> list[str]:
    rows = compose(dashboard.scene, width, height, (dashboard.progress.now or 0) + 1)
    texts = [row_text(row) for row in rows]
    assert len(texts) == height
    assert all(cells(text) == width and text.isprintable() for text in texts)
    return [text.rstrip() for text in texts]


def words(row: str) -> str:
    return " ".join(row.split())


def test_sync() -> None:
    rows = drawn(dashboard_of(syncing()), 110, 20)
    assert rows[0].startswith("starting 4 s  digits  async  digits-20261121-101500-3fa1  0/8 running")
    assert rows[1] == "lock probe plan sync... prepare start commit  60 MB of 300 MB, 30 MB/s, 8.0 s left"
    assert words(rows[3]).startswith("ps:0 n1 pending code, 12 MB of 60 MB, 6.0 MB/s,")


def test_before_there_is_a_plan_hosts_stand_in_the_table() -> None:
    dashboard = dashboard_of([event("host", 1000.0, "n1", state="unreachable", text="no answer in 10 s")])
    rows = drawn(dashboard, 80, 12)
    assert "- n1 unreachable no answer in 10 s" in map(words, rows)


def test_training() -> None:
    rows = drawn(dashboard_of(syncing(), training()), 110, 24)
    assert rows[0].startswith("running 13 s  digits  async")
    assert words(rows[1]) == "task host state step steps/s loss pid gpus restarts last line"
    assert words(rows[2]) == "ps:0 n1 running 4242 WARNING: something"
    assert words(rows[3]) == "worker:0 n2 running 1393 70 0.015 4242 0 step 1393 loss: 0.0150 [/x]"
    assert rows[-2] == "ps:0@n1     | WARNING: something"
    assert rows[-3] == "worker:2@n4 | step 1393 loss: 0.0150 [/x]"


def test_a_death_is_named_at_the_top_with_its_last_line_and_where_to_look() -> None:
    rows = drawn(dashboard_of(syncing(), training(), dying()), 110, 24)
    assert rows[0].startswith("failing ")
    assert rows[1] == "worker:1 on n3 failed with exit code 1  ValueError: bad shard digits-003"
    assert rows[2] == "look: tfdeploy logs digits-20261121-101500-3fa1 --task worker:1 -n 50"
    red = compose(dashboard_of(syncing(), training(), dying()).scene, 110, 24, 1040.0)[1][0]
    assert red.style == "bold red"
    assert drawn(dashboard_of(syncing(), training(), dying(), ended()), 110, 24)[0].startswith("failed 34 s")


def test_the_smallest_screen_still_tells_the_cause() -> None:
    assert drawn(dashboard_of(syncing(), training(), dying()), 20, 6) == [
        "failing 13 s  digits",
        "worker:1 on n3 faile",
        "worker:1 failed: 1",
        "worker:1@n3 | ValueE",
        "tfdeploy    | ps:0@n",
        "q leave   up/down ch",
    ]


DASHBOARDS = [
    dashboard_of([]),
    dashboard_of(syncing()),
    dashboard_of(syncing(), training()),
    dashboard_of(syncing(), training(), dying()),
]


@settings(deadline=None)
@given(st.sampled_from(DASHBOARDS), st.integers(1, 250), st.integers(1, 80))
def test_any_size(dashboard: Dashboard, width: int, height: int) -> None:
    drawn(dashboard, width, height)


@settings(deadline=None, max_examples=50)
@given(st.text(st.characters(categories=None), max_size=60), st.integers(5, 120))
def test_foreign_text_everywhere(text: str, width: int) -> None:
    cause = event("run", 1002.0, state="failed", cause=text)
    drawn(dashboard_of(training(), [line(1040.0, "worker:0", text), line(1041.0, text, text), cause]), width, 20)


def test_many_tasks_scroll_to_the_chosen_one() -> None:
    dashboard = Dashboard(plan_of(255))
    for one in training(plan_of(255)):
        dashboard(one)
    dashboard.take()
    rows = drawn(dashboard, 80, 24)
    assert sum(" running" in row for row in rows[2:12]) == 10
    for _ in range(200):
        dashboard.view.key("down")
    assert any(row.startswith("worker:198") for row in drawn(dashboard, 80, 24))
    for _ in range(300):
        dashboard.view.key("up")
    assert any(row.startswith("ps:0") for row in drawn(dashboard, 80, 24))


@pytest.mark.fault("47 very many tasks: the dead one is in sight")
def test_many_tasks_the_dead_one_is_in_sight() -> None:
    dashboard = Dashboard(plan_of(255))
    dashboard(event("task", 1010.0, "n151", "worker:149", state="ended", attempt=1, outcome="killed", signal=9, ended=1009.0))
    dashboard.take()
    assert any(row.startswith("worker:149 n151 killed: 9") for row in drawn(dashboard, 100, 16))


def test_a_loud_task_does_not_crowd_out_a_quiet_one() -> None:
    dashboard = dashboard_of(syncing(), training())
    dashboard.ring.mark(1040.0)
    dashboard(line(1040.0, "worker:5", "I am quiet"))
    for number in range(50_000):
        dashboard(line(1041.0, "worker:0", f"step {number}"))
        if not number % 10_000:
            dashboard.take()
    dashboard.take()
    rows = drawn(dashboard, 100, 24)
    assert "worker:5@n7 | I am quiet" in rows
    assert rows[-2] == "worker:0@n2 | step 49999"
    assert any("older lines not kept here" in row for row in rows)


def test_silence_of_a_running_task_is_pointed_out() -> None:
    dashboard = dashboard_of(syncing(), training())
    dashboard.scene.quiet["worker:0"] = 185.0
    row = next(row for row in drawn(dashboard, 120, 24) if "(quiet 3:05) step 1393" in row)
    before = next(row for row in drawn(dashboard_of(syncing(), training()), 120, 24) if row.startswith("worker:0 "))
    assert row.split()[:4] == before.split()[:4]
    assert (row.split()[4], before.split()[4]) == ("0", "70")


def test_a_filter_that_nothing_fits_says_so() -> None:
    dashboard = dashboard_of(syncing(), training())
    for key in ("/", *"nowhere", "enter"):
        dashboard.scene.view.key(key)
    assert any("lines kept here has 'nowhere'; Esc shows them" in row for row in drawn(dashboard, 120, 24))


def test_the_terminal_that_takes_no_frames_costs_bounded_memory() -> None:
    dashboard = Dashboard(PLAN)
    for _ in range(100_000):
        dashboard(line(1.0, "worker:0", "x"))
    dashboard(event("run", 2.0, state="succeeded"))
    assert len(dashboard._queue) < 21_000
    dashboard.take()
    assert dashboard.progress.state == "succeeded"
    assert dashboard.ring.count == 100_001
