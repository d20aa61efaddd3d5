"""Test how tfdeploy asks a question on a real terminal (a pty whose screen pyte emulates) while a
display is active. The tests cover every kind of display.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.pseudo_terminal import Terminal

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, threading
sys.path[:0] = [{root!r}, {here!r}]
from contextlib import nullcontext
from tfdeploy.cli.consent import make_confirm
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.cli.interrupts import interrupt_on_first_signal
from tfdeploy.cli.views import make_launch_view, make_transfer_view
from tfdeploy.model.events import Event

flags = CommonFlags()
def transfer(sent):
    data = dict(what="data d", state="moving", sent_bytes=sent, total_bytes=90)
    return Event("transfer", 1000.0 + sent, host="n1", data=data)
def step(state):
    return Event("step", 1000.0, data=dict(step="sync", state=state))
def say(text):
    return Event("note", 1000.0, data=dict(level="info", text=text))

def main(display):
    view = make_transfer_view(flags) if display.startswith("sync") else nullcontext()
    with interrupt_on_first_signal(), view as show:
        show = show or (make_launch_view(flags) if display == "launch" else lambda event: None)
        if display == "launch":
            show(step("begin"))
        if display != "sync, nothing moves":
            show(transfer(30))
        try:
            meanwhile = threading.Timer(0.2, lambda: show(say("n3 answers again")))
            meanwhile.start()
            agreed = make_confirm(flags)("Delete 30 files?")
            meanwhile.join()
            if display != "sync, nothing moves":
                show(transfer(60))
            sys.stdin.readline()  # the test looks at what is drawn now
        finally:
            if display == "launch":
                show(step("failed"))
    print("agreed:", agreed)

try:
    main({display!r})
except KeyboardInterrupt:
    print("interrupted")
    sys.exit(130)
"""
DISPLAYS = ("none", "sync", "sync, nothing moves", "launch")


@pytest.fixture
def asked() -> Iterator[Callable[[str], Terminal]]:
    """Return a function asked(display), which starts a program that asks a question while the
    display is active.

    The question is on the screen when the function returns.
    """
    opened: list[Terminal] = []

    def begin(display: str) -> Terminal:
        text = PROGRAM.format(root=str(ROOT), here=str(ROOT / "tests"), display=display)
        opened.append(
            Terminal(
                [sys.executable, "-c", text],
                {**os.environ, "PYTHONPATH": str(ROOT)},
                columns=80,
                rows=12,
            )
        )
        assert opened[-1].shows("Delete 30 files? (yes/no) _")[-1] == "Delete 30 files? (yes/no) _"
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


@pytest.mark.parametrize("display", DISPLAYS)
def test_question_and_answer_are_visible_and_display_continues(
    asked: Callable[[str], Terminal], display: str
) -> None:
    terminal = asked(display)
    terminal.type(b"ye")
    terminal.shows("Delete 30 files? (yes/no) ye_")
    terminal.type(b"s\n")
    goes_on = terminal.shows(
        "60 B of 90 B" if display in ("sync", "launch") else "Delete 30 files? (yes/no) yes"
    )
    # The display must not have overwritten the question.
    assert "Delete 30 files? (yes/no) yes" in goes_on
    if display != "none":
        assert "n3 answers again" in goes_on[goes_on.index("Delete 30 files? (yes/no) yes") :]
    terminal.type(b"\n")
    assert terminal.finish() == 0 and "agreed: True" in terminal.screen()


@pytest.mark.parametrize("typed", [b"n\n", b"\n", b"\x04", b"\xff\n", b"maybe\n"])
def test_only_y_and_yes_mean_yes(asked: Callable[[str], Terminal], typed: bytes) -> None:
    terminal = asked("sync, nothing moves")
    terminal.type(typed)
    terminal.shows("n3 answers again")
    terminal.type(b"\n")
    assert terminal.finish() == 0 and "agreed: False" in terminal.screen()


@pytest.mark.parametrize("display", DISPLAYS)
def test_ctrl_c_interrupts_and_restores_terminal(
    asked: Callable[[str], Terminal], display: str
) -> None:
    terminal = asked(display)
    terminal.type(b"\x03")
    assert terminal.finish() == 130
    shown = terminal.screen()
    assert "Delete 30 files? (yes/no) ^C" in shown and "interrupted" in shown
    # The cursor was shown again as often as it was hidden.
    assert terminal.output.count(b"\x1b[?25l") == terminal.output.count(b"\x1b[?25h")


def test_only_one_module_asks() -> None:
    """Test that only one module of tfdeploy asks questions on the terminal. If another module
    asked, an active display would overwrite the question.
    """
    readers = set()
    for path in sorted((ROOT / "tfdeploy").rglob("*.py")):
        if path.relative_to(ROOT / "tfdeploy").parts[0] in ("agent", "runtime", "lab"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in ("input", "getpass.getpass") or called.startswith("sys.stdin.read"):
                readers.add(path.relative_to(ROOT).as_posix())
    assert readers == {"tfdeploy/ui/question.py"}
