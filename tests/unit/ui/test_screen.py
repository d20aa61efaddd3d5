"""Test that the class Screen writes only the rows that have changed.

After a resize, and every few seconds, the screen writes all rows. At its end, it restores the
terminal.
"""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from tfdeploy.ui.cells import Row, Span
from tfdeploy.ui.screen import WHOLE_S, Screen


@pytest.fixture
def console() -> Console:
    return Console(
        file=io.StringIO(),
        width=20,
        height=3,
        force_terminal=True,
        color_system="standard",
        legacy_windows=False,
        _environ={},
    )


def wrote(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    console.file.seek(0)
    console.file.truncate()
    return text


def rows(*texts: str) -> list[Row]:
    return [[Span(text, "red" if text.startswith("!") else "")] for text in texts]


def numbers(text: str) -> list[str]:
    """Return the numbers of the rows that this output writes."""
    return re.findall(r"\x1b\[(\d+);1H", text)


def test_only_changed_rows_are_written(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("tfdeploy.ui.screen.time.monotonic", lambda: clock[0])
    screen = Screen(console)
    screen.draw(rows("one", "two  ", "!three"))
    assert (
        wrote(console) == "\x1b[1;1Hone\x1b[K\x1b[2;1Htwo\x1b[K\x1b[3;1H\x1b[31m!three\x1b[0m\x1b[K"
    )
    screen.draw(rows("one", "2", "!three"))
    assert wrote(console) == "\x1b[2;1H2\x1b[K"
    screen.draw(rows("one", "2", "!three"))
    assert wrote(console) == ""
    console.size = (30, 3)
    screen.draw(rows("one", "2", "!three"))
    assert numbers(wrote(console)) == ["1", "2", "3"]
    # All rows are written again, because another program may have written to the terminal.
    clock[0] += WHOLE_S + 1
    screen.draw(rows("one", "2", "!three"))
    assert numbers(wrote(console)) == ["1", "2", "3"]


def test_terminal_is_always_restored(console: Console) -> None:
    with pytest.raises(ZeroDivisionError), Screen(console) as screen:
        assert wrote(console) == "\x1b[?1049h\x1b[H\x1b[?25l"
        screen.draw(rows("one"))
        raise ZeroDivisionError
    assert wrote(console).endswith("\x1b[?1049l\x1b[?25h")


def test_row_of_reversed_blanks_is_kept(console: Console) -> None:
    Screen(console).draw([[Span("x"), Span("   ", "reverse")]])
    assert wrote(console) == "\x1b[1;1Hx\x1b[7m   \x1b[0m\x1b[K"
