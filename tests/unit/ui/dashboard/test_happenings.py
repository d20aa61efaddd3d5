"""Test that each event that the dashboard lists is listed only once."""

from __future__ import annotations

from support.dashboard_scenes import RUN, dying, event, syncing, training
from support.screens import waiting
from tfdeploy.ui.dashboard.happenings import KEPT, RunHistory


def happenings_after(*events: object) -> RunHistory:
    happenings = RunHistory()
    for part in events:
        for next_event in part:  # type: ignore[attr-defined]
            if next_event.kind != "line":
                happenings.add(next_event)
    return happenings


def test_equal_events_of_several_tasks_are_one() -> None:
    words = [happening.folded_text for happening in happenings_after(syncing(), training()).all]
    assert words == [
        "n[1-5] code 60 MB sent",
        "ps:0,worker:[0-6] running",
        "run digits-20261121-101500-3fa1 running",
    ]


def test_stalls_with_different_reasons_are_separate() -> None:
    words = [happening.folded_text for happening in happenings_after(waiting()).all]
    assert "worker:[0-1,3] stalled: waits for worker:2 on n4" in words
    assert any(text.startswith("worker:2@n4 stalled: frozen") for text in words)


def test_reopened_dashboard_lists_no_state_at_the_time_of_its_start() -> None:
    running = event("run", 1051.0, state="running")
    happenings = RunHistory()
    happenings.mark_running(RUN)
    started = event("task", 1051.0, "n2", "worker:0", state="running", started=1004.0)
    for each in (started, running):
        happenings.add(each)
    assert [(each.time, each.folded_text) for each in happenings.all] == [
        (1004.0, "worker:0@n2 running")
    ]
    for each in (event("run", 1060.0, state="failed"), event("run", 1070.0, state="running")):
        happenings.add(each)
    assert [each.time for each in happenings.all] == [1004.0, 1060.0, 1070.0]
    ended = event("task", 1080.0, "n2", "worker:0", state="ended", outcome="stopped", ended=1079.5)
    happenings.add(ended)
    assert happenings.all[-1].time == 1080.0


def test_first_death_is_cause_until_run_continues() -> None:
    happenings = happenings_after(training(), dying())
    assert (
        happenings.cause is not None
        and happenings.cause.text == "worker:1@n3 failed with exit code 1"
    )
    cause = happenings.cause
    happenings.forget_cause()
    assert (happenings.cause, cause.first) == (None, False)


def test_repeated_event_is_listed_once_and_list_is_bounded() -> None:
    unreachable_event = event("host", 1.0, "n1", state="unreachable", text="no answer")
    assert len(happenings_after([unreachable_event, unreachable_event]).all) == 1
    many = (
        event("note", float(time), level="info", text=f"note {time}") for time in range(3 * KEPT)
    )
    assert len(happenings_after(many).all) == KEPT
