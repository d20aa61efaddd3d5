"""Write tables for any width: with whole columns if they fit, else with cut columns, else as a
block of lines for each row.

Cells are sanitised here. If the output is not a terminal, nothing is cut. The package rich is not
used, because its import takes longer than a whole command of tfdeploy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.terminal import Terminal

_GAP = "  "
# The minimum width of a cut column, in columns of the terminal.
_NARROWEST = 8
_STYLES = {
    "ok": "green",
    "yes": "green",
    "running": "green",
    "succeeded": "bold green",
    "starting": "yellow",
    "stopped": "yellow",
    "unreachable": "bold yellow",
    "stalled": "bold yellow",
    "failed": "bold red",
    "killed": "bold red",
    "gave up": "bold red",
    "lost": "bold red",
}
Row = Sequence[object]
Paint = Callable[[str], str]


def show_rows(terminal: Terminal, headers: Sequence[str], rows: Iterable[Row]) -> None:
    """Write the table, with coloured states if colours are wanted. Write nothing if there are no
    rows."""

    def paint(text: str) -> str:
        return terminal.paint(text, _STYLES.get(text.split(":")[0], ""))

    lines = table_lines(headers, rows, terminal.width, paint, lambda h: terminal.paint(h, "dim"))
    if lines:
        terminal.write("\n".join(lines) + "\n")


def table_lines(
    headers: Sequence[str],
    rows: Iterable[Row],
    width: int | None,
    paint: Paint = str,
    paint_header: Paint = str,
) -> list[str]:
    """Return the table as lines of at most `width` columns, or of any width if `width` is None.
    Return [] if there are no rows."""
    body = [["" if cell is None else clean(str(cell)) for cell in row] for row in rows]
    if not body:
        return []
    widths = _fit_widths(
        [max(map(cell_width, column)) for column in zip(headers, *body, strict=True)], width
    )
    if widths is None:
        return _row_blocks(headers, body, width or 0, paint, paint_header)
    return [_table_line(headers, widths, paint_header)] + [
        _table_line(row, widths, paint) for row in body
    ]


def cell_width(text: str) -> int:
    """Return how many columns of a terminal a printable text occupies."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut_to_width(text: str, width: int) -> str:
    """Return the text, cut to `width` columns. If the text is cut, it ends with dots, unless
    `width` is very small."""
    if cell_width(text) <= width:
        return text
    dots = "..." if width >= _NARROWEST else ""
    if text.isascii():
        return text[: max(0, width - len(dots))] + dots
    from rich.cells import set_cell_size

    return set_cell_size(text, max(0, width - len(dots))).rstrip() + dots


def _fit_widths(natural: list[int], width: int | None) -> list[int] | None:
    """Return the widths of the columns. If the table is too wide, the widest column is cut first.
    Return None if even cut columns do not fit."""
    widths = list(natural)
    surplus = sum(widths) + len(_GAP) * (len(widths) - 1) - (width or 0)
    while width is not None and surplus > 0:
        widest = max(range(len(widths)), key=lambda i: (widths[i], i))
        if widths[widest] <= _NARROWEST:
            return None
        widths[widest] -= 1
        surplus -= 1
    return widths


def _table_line(row: Sequence[str], widths: list[int], paint: Paint) -> str:
    shown = [cut_to_width(text, width) for text, width in zip(row, widths, strict=True)]
    while shown and not shown[-1]:
        shown.pop()
    *others, last = shown or [""]
    parts = [
        paint(text) + " " * (width - cell_width(text))
        for text, width in zip(others, widths, strict=False)
    ]
    return _GAP.join([*parts, paint(last)])


def _row_blocks(
    headers: Sequence[str], body: list[list[str]], width: int, paint: Paint, paint_header: Paint
) -> list[str]:
    lines = []
    for first, *others in body:
        lines.append(paint(cut_to_width(first, width)))
        for header, text in zip(headers[1:], others, strict=True):
            if text:
                label = cut_to_width(f" {header} ", width)
                lines.append(
                    paint_header(label) + paint(cut_to_width(text, width - cell_width(label)))
                )
    return lines
