"""Build rows of styled text, each with an exact width. This module draws nothing: a row is a list
of spans, which the package rich draws."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from tfdeploy.ui.tables import cell_width, cut_to_width
from tfdeploy.ui.terminal import TASK_COLORS, task_color


class Span(NamedTuple):
    """A sanitised text and its style. `style`: as the package rich writes styles, such as "bold
    red"; "" for no style."""

    text: str
    style: str = ""


Row = list[Span]


def fit_row(row: Row, width: int) -> Row:
    """Return the row, cut or padded to exactly `width` columns."""
    fitted: Row = []
    free_columns = width
    for piece in row:
        used_columns = cell_width(piece.text)
        if used_columns > free_columns:
            piece = Span(_crop(piece.text, free_columns), piece.style)
            used_columns = cell_width(piece.text)
        fitted.append(piece)
        free_columns -= used_columns
        if free_columns <= 0:
            break
    if free_columns > 0:
        fitted.append(Span(" " * free_columns))
    return fitted


def pad_or_cut(text: str, width: int, *, align_right: bool = False) -> str:
    """Return the text cut or padded to exactly `width` columns. `align_right`: align the text to
    the right."""
    if (free := width - cell_width(text)) < 0:
        text = cut_to_width(text, width)
        free = width - cell_width(text)
    return " " * free + text if align_right else text + " " * free


def task_style(task: str) -> str:
    return TASK_COLORS[task_color(task)]


def merge_spans(chars: Iterable[Span]) -> Row:
    """Return the spans as a row. Neighbouring spans of the same style are joined into one span."""
    groups = groupby(chars, key=attrgetter("style"))
    return [Span("".join(char.text for char in same), style) for style, same in groups]


def _crop(text: str, width: int) -> str:
    if text.isascii():
        return text[:width]
    from rich.cells import set_cell_size

    return set_cell_size(text, width)


def wrap_to_columns(text: str, width: int, *, indent: int = 0) -> list[str]:
    """Split `text` into pieces of at most `width` columns, if necessary within a word. All pieces
    except the first begin with `indent` blanks."""
    pieces: list[str] = []
    room = width
    while cell_width(text) > room:
        piece = _crop(text, room).rstrip() if not text.isascii() else text[:room]
        line = piece or text[:1]
        pieces.append(" " * (indent if pieces else 0) + line)
        text = text[len(line) :]
        room = max(1, width - indent)
    return [*pieces, " " * (indent if pieces else 0) + text]
