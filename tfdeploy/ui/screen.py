"""Draw rows in the styles of `rich` on the full screen. Only changed rows are written.
The terminal is restored at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from rich.console import Console, ConsoleOptions
from rich.segment import Segment, Segments
from rich.style import Style

from tfdeploy.ui.cells import Row

# After this many seconds all rows are written again, in case another program has written on the
# terminal.
WHOLE_S = 5.0


class RenderableRows:
    """Rows of exact width, as objects of the class `rich.segment.Segment`. `rich` can print and
    export them."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for row in self.rows:
            for text, style in row:
                yield Segment(text, Style.parse(style))
            yield Segment.line()


class Screen:
    """The alternate screen of a terminal: `with Screen(console) as screen: screen.draw(rows)`. The
    rows must fit into the size that `screen.size()` returns."""

    def __init__(self, console: Console) -> None:
        self.console = console
        # {style: the escape sequences before and after a text of this style}.
        self._codes: dict[str, tuple[str, str]] = {}
        # The rows that are on the terminal now.
        self._shown: list[str] = []
        self._size = (0, 0)
        # The time of the monotonic clock when all rows were last written.
        self._whole = 0.0

    def __enter__(self) -> Screen:
        self.size()
        self.console.set_alt_screen(True)
        self.console.show_cursor(False)
        return self

    def __exit__(self, *_: object) -> None:
        # An OSError means that the terminal has closed.
        with suppress(OSError):
            self.console.set_alt_screen(False)
            self.console.show_cursor(True)

    def size(self) -> tuple[int, int]:
        """Return the current size of the terminal: columns and rows."""
        try:
            terminal_size = os.get_terminal_size(self.console.file.fileno())
            width, height = terminal_size.columns or 80, terminal_size.lines or 24
        except (OSError, ValueError):
            width, height = self.console.size
        self.console.size = (width, height)
        return width, height

    def draw(self, rows: list[Row]) -> None:
        """Draw the rows. Raises OSError if the terminal has closed."""
        now = time.monotonic()
        lines = [self._line(row) for row in rows]
        whole = self._size != self.console.size or now - self._whole > WHOLE_S
        if whole:
            self._size, self._whole, self._shown = self.console.size, now, []
        before = self._shown
        changed = [
            (number, line)
            for number, line in enumerate(lines)
            if number >= len(before) or before[number] != line
        ]
        self._shown = lines
        if not changed:
            return
        # \x1b[K after a row clears the rest of the row. So no blanks are written, and text that is
        # copied from the terminal has no blanks at the ends of lines.
        text = "".join(f"\x1b[{number + 1};1H{line}\x1b[K" for number, line in changed)
        stream = self.console.file
        stream.write(text.encode(self.console.encoding, "replace").decode(self.console.encoding))
        stream.flush()

    @property
    def unicode(self) -> bool:
        return self.console.encoding.startswith("utf")

    def _line(self, row: Row) -> str:
        """Return the row as text with escape sequences, but without blanks at the end."""
        spans = list(row)
        while spans and not spans[-1].text.rstrip(" ") and "reverse" not in spans[-1].style:
            spans.pop()
        parts = []
        for index, (text, style) in enumerate(spans):
            before, behind = self._codes.get(style) or self._code(style)
            shown = text.rstrip(" ") if index == len(spans) - 1 and "reverse" not in style else text
            parts.append(f"{before}{shown}{behind}")
        return "".join(parts)

    def _code(self, style: str) -> tuple[str, str]:
        """Return the escape sequences that rich writes before and after a text in this style, for
        this terminal."""
        with self.console.capture() as capture:
            self.console.print(Segments([Segment("x", Style.parse(style))]), end="")
        before, _, behind = capture.get().partition("x")
        self._codes[style] = before, behind
        return before, behind
