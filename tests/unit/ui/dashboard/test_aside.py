"""Test the view of the log from which a user can copy text. It shows whole lines without labels,
and only those lines that match the filter. The key Enter leads back to the dashboard.
"""

from __future__ import annotations

import io
import os

from support.dashboard_scenes import event, training
from support.recorded import replay_to_view
from tfdeploy.ui.dashboard.aside import MOST_LINES, wait_for_enter, write_log_lines
from tfdeploy.ui.dashboard.dashboard import Dashboard

LONG = "y" * 300


def board() -> Dashboard:
    new_dashboard = Dashboard(clock=lambda: 0.0)
    for next_event in training():
        replay_to_view(new_dashboard, next_event)
    replay_to_view(
        new_dashboard,
        event(
            "line", 1040.0, "n2", "worker:0", stream="out", line=f"\x1b[31m{LONG} 日本", offset=0
        ),
    )
    new_dashboard.apply_events()
    new_dashboard.ring.record_arrivals(1.0)
    return new_dashboard


def test_lines_are_complete_and_sanitised() -> None:
    out = io.StringIO()
    write_log_lines(out, board().view)
    lines = out.getvalue().splitlines()
    assert lines[-1] == f"{LONG} 日本" and lines[-2] == "WARNING: something"
    assert len([line for line in lines if "loss" in line]) == 600 < MOST_LINES


def test_character_missing_in_terminal_becomes_question_mark() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    write_log_lines(out, board().view)
    assert raw.getvalue().splitlines()[-1] == f"{LONG} ??".encode()


def test_enter_or_end_of_input_returns_to_dashboard() -> None:
    for typed in (b"x\n", b"\r", b""):
        reads, writes = os.pipe()
        try:
            os.write(writes, typed)
            os.close(writes)
            wait_for_enter(io.StringIO(), reads)
        finally:
            os.close(reads)
