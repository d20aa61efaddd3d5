"""Convert rows that tfdeploy/ui draws to plain text, which tests compare."""

from __future__ import annotations

from tfdeploy.ui.cells import Row


def row_text(row: Row) -> str:
    return "".join(piece.text for piece in row)
