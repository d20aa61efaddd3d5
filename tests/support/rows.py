"""Make plain text, which tests can compare, of the rows that tfdeploy/ui draws."""

from __future__ import annotations

from tfdeploy.ui.cells import Row


def row_text(row: Row) -> str:
    return "".join(piece.text for piece in row)
