"""Test how bytes from a terminal are translated to names of keys, in whatever chunks they arrive.
Also test what each key does.
"""

from __future__ import annotations

import os
import pty
import select
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.waiting import wait_for
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trouble import RUNNING, TaskTrouble
from tfdeploy.ui.dashboard.keyboard import Keyboard, KeyParser
from tfdeploy.ui.dashboard.log_buffer import PER_TASK, LogBuffer
from tfdeploy.ui.dashboard.row_filter import parse_filter
from tfdeploy.ui.dashboard.row_order import TableRow
from tfdeploy.ui.dashboard.view_state import ViewState

BYTES = {
    b"q": ["q"],
    b"\x1b[A\x1b[B\x1bOA": ["up", "down", "up"],
    b"\x1b[5~\x1b[6~\x1b[H\x1b[F": ["pgup", "pgdn", "home", "end"],
    b"/l\xc3\xa9\r": ["/", "l", "é", "enter"],
    b"\x7f\x08": ["backspace", "backspace"],
    b"\x1b[1;5Aq": ["q"],
    b"\x1b[200~x\x1b[201~": ["x"],
    b"\x1b\x1bq": ["esc", "esc", "q"],
    b"\x00\x07\xff": [],
}


@pytest.mark.parametrize("data", BYTES)
def test_bytes_to_keys(data: bytes) -> None:
    whole, single = KeyParser(), KeyParser()
    assert whole.feed(data) + whole.flush_escape() == BYTES[data]
    assert [
        key for byte in data for key in single.feed(bytes([byte]))
    ] + single.flush_escape() == BYTES[data]


def test_single_escape_needs_pause() -> None:
    parser = KeyParser()
    assert parser.feed(b"\x1b") == []
    assert parser.is_inside_sequence
    assert parser.flush_escape() == ["esc"]
    assert parser.flush_escape() == []


@given(st.binary(max_size=64))
def test_any_bytes_are_accepted(data: bytes) -> None:
    parser = KeyParser()
    assert all(isinstance(key, str) for key in parser.feed(data) + parser.flush_escape())


def test_unread_keys_reach_next_keyboard_only_after_hand_over() -> None:
    control, terminal = pty.openpty()
    try:
        with Keyboard(terminal) as first:
            os.write(control, b"\x1b")
            assert first.read(1) == []
            assert first.hand_over_unread() == ["esc"]
            os.write(control, b"q")
            assert select.select([terminal], [], [], 5)[0]
        os.write(control, b"c")
        with Keyboard(terminal) as second:
            keys: list[str] = []
            wait_for(lambda: keys.extend(second.read(0.1)) or len(keys) > 1, 5, "both keys")
            assert keys == ["q", "c"]
            os.write(control, b"x")
            assert select.select([terminal], [], [], 5)[0]
        with Keyboard(terminal) as third:
            assert third.read(0.1) == []
    finally:
        os.close(control)
        os.close(terminal)


def test_real_terminal_is_restored() -> None:
    control, terminal = pty.openpty()
    try:
        before = termios.tcgetattr(terminal)
        with pytest.raises(RuntimeError), Keyboard(terminal) as keyboard:
            assert not termios.tcgetattr(terminal)[3] & (termios.ECHO | termios.ICANON)
            os.write(control, b"\x1b[Bf")
            assert keyboard.read(5) == ["down", "f"]
            os.write(control, b"\x1b")
            assert [*keyboard.read(5), *keyboard.read(5)] == ["esc"]
            raise RuntimeError
        assert termios.tcgetattr(terminal) == before
    finally:
        os.close(control)
        os.close(terminal)


def view_of(lines: int = 100) -> ViewState:
    ring = LogBuffer()
    for number in range(lines):
        ring.add(f"worker:{number % 2}", "n1", f"line {number}")
    view = ViewState(ring=ring, progress=RunProgress())
    view.items = [
        TableRow(task, (task,), TaskTrouble(RUNNING, "running"))
        for task in ("worker:0", "worker:1")
    ]
    return view


def filter_by(ring: LogBuffer, text: str) -> None:
    """Filter the log as the dashboard does for each frame."""
    ring.set_filter(text, parse_filter(text, RunProgress()).text_test, None)


def shown_lines(view: ViewState, rows: int = 4) -> list[str]:
    filter_by(view.ring, view.filter)
    return [line.text for line in view.visible_lines(rows)]


def press(view: ViewState, *keys: str) -> None:
    for key in keys:
        view.handle_key(key)


def test_live_view_shows_newest_lines() -> None:
    assert shown_lines(view_of()) == ["line 96", "line 97", "line 98", "line 99"]
    assert shown_lines(view_of(), 0) == []


def test_paused_view_is_constant_and_counts_new_lines() -> None:
    view = view_of()
    press(view, " ")
    view.ring.add("worker:0", "n1", "new")
    assert shown_lines(view)[-1] == "line 99"
    assert view.unseen_lines == 1
    press(view, " ")
    assert shown_lines(view)[-1] == "new"


def test_scrolling_back_and_returning_to_live_view() -> None:
    view = view_of()
    shown_lines(view)
    press(view, "pgup", "pgup")
    assert shown_lines(view) == ["line 88", "line 89", "line 90", "line 91"]
    view.ring.add("worker:0", "n1", "new")
    assert shown_lines(view)[-1] == "line 91"
    press(view, "home", "pgup")
    assert shown_lines(view) == ["line 0", "line 1", "line 2", "line 3"]
    press(view, "end")
    assert shown_lines(view)[-1] == "new"


def test_following_one_task_and_choosing_another() -> None:
    view = view_of()
    press(view, "f")
    assert view.followed == "worker:0"
    assert shown_lines(view) == ["line 92", "line 94", "line 96", "line 98"]
    press(view, "down")
    assert shown_lines(view) == ["line 93", "line 95", "line 97", "line 99"]
    press(view, "f")
    assert view.followed is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("line [56]$", ["line 5", "line 6"]),
        ("LINE 5|6", ["line 5", "line 6"]),
        ("line (", ["line ("]),
        ('"line 5"', ["line 5"]),
        ("line !5 !6 !7", ["line ("]),
        ("nowhere", []),
    ],
)
def test_valid_expression_is_used_as_filter(text: str, shown: list[str]) -> None:
    ring = LogBuffer()
    for line in ("line 5", "line 6", "line 7", "line ("):
        ring.add("worker:0", "n1", line)
    filter_by(ring, text)
    assert [line.text for line in ring.tail(9)] == shown
    ring.add("worker:0", "n1", "line 5 again")
    assert len(ring.tail(9)) == len(shown) + (text in ("LINE 5|6", '"line 5"'))
    assert ring.count_kept() == ring.count_kept("worker:0") == 5


@pytest.mark.parametrize("text", ["5{99999999999}", "[[5](6)", "5|" * 5000])
def test_expensive_filter_is_survived(text: str) -> None:
    ring = LogBuffer()
    ring.add("worker:0", "n1", text)
    filter_by(ring, text)
    ring.tail(9)


def test_filter_applies_while_typing() -> None:
    view = view_of()
    press(view, "/", *'"LINE 9', "backspace", "5")
    assert view.filter == '"LINE 5'
    assert shown_lines(view) == ["line 56", "line 57", "line 58", "line 59"]
    press(view, "enter", "q")
    assert view.quit
    view.ring.add("worker:0", "n1", "no match")
    view.ring.add("worker:0", "n1", "Line 5 again")
    assert shown_lines(view)[-1] == "Line 5 again"
    press(view, "esc")
    assert view.filter == ""
    assert shown_lines(view)[-2:] == ["no match", "Line 5 again"]


def test_q_is_a_letter_while_typing() -> None:
    view = view_of()
    press(view, "/", "q")
    assert not view.quit
    assert shown_lines(view) == []
    press(view, "esc")
    assert len(shown_lines(view)) == 4


def test_buffer_is_bounded_and_counts_dropped_lines() -> None:
    ring = LogBuffer()
    for number in range(3 * PER_TASK):
        ring.add("loud", "n1", "x" * 100_000 if number == 2 * PER_TASK else str(number))
    ring.add("quiet", "n2", "hello")
    assert ring.dropped_lines == 2 * PER_TASK
    assert ring.all_lines()[-1].text == "hello"
    assert max(len(line.text) for line in ring.all_lines()) == 4096
    assert ring.last_texts_of("loud", 2) == [str(3 * PER_TASK - 2), str(3 * PER_TASK - 1)]
    assert ring.last_texts_of("nobody", 2) == []


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=200), st.integers(0, 30))
def test_tail_is_complete_and_in_order(steps: list[tuple[int, bool]], rows: int) -> None:
    ring = LogBuffer(per_task=50)
    for clock, (task, mark) in enumerate(steps):
        ring.add(f"t{task}", "n", str(clock))
        if mark:
            ring.record_arrivals(float(clock))
    tail = [line.number for line in ring.tail(rows)]
    assert tail == sorted(set(tail))
    assert len(tail) == min(rows, ring.count - ring.dropped_lines)


def test_each_page_scrolls_and_returns() -> None:
    view = view_of()
    press(view, "down", "enter")
    assert (view.page, view.selected) == ("task", "worker:0")
    view.page_rows = 10
    press(view, "down", "pgdn", "up")
    assert view.offset == 10
    press(view, "esc", "c")
    assert (view.page, view.offset) == ("curves", 0)
    press(view, "t", "?")
    assert view.page == "help"
    press(view, "q")
    assert (view.page, view.quit) == ("run", False)


def test_commands_on_run_need_confirmation() -> None:
    view = view_of()
    view.progress.take_lines("worker:0", "n7", 1.0, [], 0)
    press(view, "x", "n")
    assert (view.question, view.aside) == (None, None)
    press(view, "o")
    # No row is selected, so there is no host for the shell.
    assert view.question is None
    press(view, "down", "o")
    assert view.question is not None and view.question.text == "open a shell on n7?"
    press(view, "y")
    assert view.aside is not None and (view.aside.action, view.aside.host) == ("shell", "n7")


def test_action_that_waits_for_the_launch_is_withdrawn_or_carried_over() -> None:
    view, after = view_of(), view_of()
    press(view, "x", "y", "esc")
    assert (view.question, view.aside, view.quit) == (None, None, False)
    press(view, "x")
    after.copy_choices(view)
    assert after.question == view.question is not None
    press(view, "y")
    after.copy_choices(view)
    assert after.aside is not None and after.aside.action == "stop"


def test_enter_unfolds_row_and_e_folds_it() -> None:
    view = view_of()
    view.items = [
        TableRow("worker:[0-1]", ("worker:0", "worker:1"), TaskTrouble(RUNNING, "running"))
    ]
    press(view, "enter")
    assert (view.open, view.page) == ("worker", "run")
    press(view, "e")
    assert (view.open, view.fold) == (None, False)
    press(view, "e")
    assert view.fold is True


def test_order_of_rows_cycles() -> None:
    view = view_of()
    seen = []
    for _ in range(5):
        seen.append(view.sort)
        press(view, "s")
    assert seen == ["trouble", "task", "host", "pace", "trouble"]
