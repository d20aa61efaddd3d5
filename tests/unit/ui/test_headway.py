"""Test when a command such as `stop` shows its progress: often on a terminal, seldom elsewhere, and
never if the command is quick.
"""

from __future__ import annotations

import io

import pytest

from tfdeploy.ui.headway import EVERY_S, FIRST_S, HostCountLine
from tfdeploy.ui.terminal import Terminal


def show_headway(width: int | None, seconds_a_host: float) -> str:
    now = 0.0
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfdeploy.ui.headway.time.monotonic", lambda: now)
        headway = HostCountLine(Terminal(stream, width, False), 200)
        for number in range(200):
            now += seconds_a_host
            headway.mark_done(f"n{number}")
    headway.erase()
    return stream.getvalue()


def test_quick_verb_shows_no_progress() -> None:
    assert show_headway(None, FIRST_S / 300) == show_headway(80, FIRST_S / 300) == ""


def test_few_progress_lines_are_printed() -> None:
    # At 0.25 s for each of 200 hosts, the command takes 50 s.
    lines = show_headway(None, 0.25).splitlines()
    assert lines[0] == "stopped 8 of 200 hosts ..."
    assert 2 <= len(lines) <= 50 / EVERY_S + 1


def test_terminal_shows_one_line_that_is_removed_at_end() -> None:
    output = show_headway(80, 0.25)
    assert "\n" not in output and output.endswith("\r\x1b[K")
    assert "stopped 160 of 200 hosts ..." in output


def test_retried_hosts_are_named() -> None:
    stream = io.StringIO()
    headway = HostCountLine(Terminal(stream, None, False), 3)
    headway.mark_done("n1")
    headway.report_retry({"n2": "said nothing\x1b[2J", "n3": "x"})
    line = stream.getvalue()
    assert (
        line.startswith("stopped 1 of 3 hosts; trying n2 and 1 more host again: said nothing")
        and "\x1b" not in line
    )
