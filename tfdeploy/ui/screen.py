"""The full screen on which rich draws frames. The terminal is restored on every way out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType

from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from tfdeploy.ui.cells import Row


class Picture:
    """Rows of exact width as rich's segments, so that rich does not lay them out again."""

    _styles: dict[str, Style] = {}  # noqa: RUF012 - a cache of parsed words, shared on purpose

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for row in self.rows:
            for text, style in row:
                yield Segment(text, self._style(style))
            yield Segment.line()

    def _style(self, words: str) -> Style:
        found = self._styles.get(words)
        if found is None:
            found = self._styles[words] = Style.parse(words)
        return found


class Screen:
    """`with Screen(console) as screen: screen.draw(rows)`, rows of `screen.size()`."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(
            Picture([]),
            console=console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Screen:
        self.size()
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._live.stop()
        except OSError:  # the terminal has gone
            pass

    def size(self) -> tuple[int, int]:
        """Columns and rows, as they are now."""
        try:
            found = os.get_terminal_size(self.console.file.fileno())
            width, height = found.columns or 80, found.lines or 24
        except (OSError, ValueError):
            width, height = self.console.size
        self.console.size = (width, height)
        return width, height

    def draw(self, rows: list[Row]) -> None:
        """Raises OSError when the terminal has gone."""
        self._live.update(Picture(rows), refresh=True)

    @property
    def unicode(self) -> bool:
        return self.console.encoding.startswith("utf")
