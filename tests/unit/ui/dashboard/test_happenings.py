"""Test that each event that the dashboard lists is listed only once."""

from __future__ import annotations

from support.dashboard_scenes import dying, event, syncing, training
from support.screens import waiting
from tfdeploy.ui.dashboard.happenings import KEPT, Happenings


def after(*events: object) -> Happenings:
    happenings = Happenings()
    for part in events:
        for one in part:  # type: ignore[attr-defined]
            if one.kind != "line":
                happenings.add(one)
    return happenings


def test_equal_ones_of_several_tasks_are_one() -> None:
    words = [each.folded_text for each in after(syncing(), training()).all]
    assert words == [
        "n[1-5] code 60 MB sent",
        "ps:0,worker:[0-6] running",
        "run digits-20261121-101500-3fa1 running",
    ]


def test_the_reason_of_a_stall_tells_them_apart() -> None:
    words = [each.folded_text for each in after(waiting()).all]
    assert "worker:[0-1,3] stalled: waits for worker:2 on n4" in words
    assert any(each.startswith("worker:2@n4 stalled: frozen") for each in words)


def test_the_first_death_is_the_cause_until_the_run_goes_on() -> None:
    happenings = after(training(), dying())
    assert (
        happenings.cause is not None
        and happenings.cause.text == "worker:1@n3 failed with exit code 1"
    )
    cause = happenings.cause
    happenings.forget_cause()
    assert (happenings.cause, cause.first) == (None, False)


def test_what_is_told_again_is_one_and_all_is_bounded() -> None:
    one = event("host", 1.0, "n1", state="unreachable", text="no answer")
    assert len(after([one, one]).all) == 1
    many = (event("note", float(at), level="info", text=f"note {at}") for at in range(3 * KEPT))
    assert len(after(many).all) == KEPT
