"""Show an error as text (what happened, where, and what to type next) or as JSON. Never show a
traceback."""

from __future__ import annotations

import json
import sys
from typing import TextIO

from tfdeploy.errors import TfdeployError
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.terminal import Color, terminal_of


def show_error(
    error: TfdeployError,
    *,
    as_json: bool = False,
    stream: TextIO | None = None,
    color: Color = "auto",
) -> None:
    """Write the error to `stream`. The default is stderr, but for JSON it is stdout, where programs
    read results. Line breaks within a part of the error are kept."""
    if as_json:
        terminal_of(stream or sys.stdout, "never").write(json.dumps(error.as_json()) + "\n")
        return
    terminal = terminal_of(stream or sys.stderr, color)
    lines = _part_lines("error: ", error.what)
    lines[0] = terminal.paint("error:", "bold red") + lines[0][len("error:") :]
    if error.where:
        lines += _part_lines("  where: ", error.where)
    if error.next:
        lines += _part_lines("  next: ", error.next)
    terminal.write("\n".join(lines) + "\n")


def _part_lines(label: str, text: str) -> list[str]:
    first, *more = text.splitlines() or [""]
    return [label + clean(first), *(" " * len(label) + clean(line) for line in more)]
