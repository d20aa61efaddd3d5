"""Spans of a screen: styled text in rows of exact width. Values only; rich draws them."""

from __future__ import annotations

from typing import NamedTuple

from tfdeploy.ui.tables import cells, cut

_COLORS = (
    "cyan",
    "yellow",
    "green",
    "magenta",
    "blue",
    "bright_cyan",
    "bright_yellow",
    "bright_green",
    "bright_magenta",
    "bright_blue",
)
_SGR = {36: 0, 33: 1, 32: 2, 35: 3, 34: 4, 96: 5, 93: 6, 92: 7, 95: 8, 94: 9}


class Span(NamedTuple):
    """Sanitised text and its style in rich's words ("" for none)."""

    text: str
    style: str = ""


Row = list[Span]


def fit(row: Row, width: int) -> Row:
    """The row, cut or padded to exactly `width` columns."""
    fitted: Row = []
    left = width
    for piece in row:
        taken = cells(piece.text)
        if taken > left:
            piece = Span(_crop(piece.text, left), piece.style)
            taken = cells(piece.text)
        fitted.append(piece)
        left -= taken
        if left <= 0:
            break
    if left > 0:
        fitted.append(Span(" " * left))
    return fitted


def column(text: str, width: int, *, right: bool = False) -> str:
    """One cell of exactly `width` columns."""
    text = cut(text, width)
    space = " " * (width - cells(text))
    return space + text if right else text + space


def task_style(task: str) -> str:
    from tfdeploy.ui.terminal import task_color

    return _COLORS[_SGR[task_color(task)]]


def _crop(text: str, width: int) -> str:
    if text.isascii():
        return text[:width]
    from rich.cells import set_cell_size

    return set_cell_size(text, width)


def wrap(text: str, width: int, *, indent: int = 0) -> list[str]:
    """`text` in pieces of at most `width` columns, cut anywhere; all but the first begin with `indent` blanks."""
    pieces: list[str] = []
    room = width
    while cells(text) > room:
        piece = _crop(text, room).rstrip() if not text.isascii() else text[:room]
        taken = piece or text[:1]
        pieces.append(" " * (indent if pieces else 0) + taken)
        text = text[len(taken) :]
        room = max(1, width - indent)
    return [*pieces, " " * (indent if pieces else 0) + text]
