"""Find out what a stream can show (whether it is a terminal, its width, colour), and write text to
the stream, even if its encoding lacks some characters."""

from __future__ import annotations

import os
import shutil
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TextIO

Color = Literal["auto", "always", "never"]
# The colours of tasks: {SGR code: the name that the package rich uses}.
TASK_COLORS = {
    36: "cyan",
    33: "yellow",
    32: "green",
    35: "magenta",
    34: "blue",
    96: "bright_cyan",
    93: "bright_yellow",
    92: "bright_green",
    95: "bright_magenta",
    94: "bright_blue",
}
_RUN_STYLES = {
    "succeeded": "bold green",
    "running": "bold green",
    "failing": "bold red",
    "failed": "bold red",
    "lost": "bold red",
}
# {word of a style: its SGR code}
NAMED = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}


@dataclass(frozen=True)
class Terminal:
    """A stream and what it can show. `width`: the number of columns. If the stream is not a
    terminal, `width` is None, and lines are not cut. `color`: whether colours are wanted."""

    stream: TextIO
    width: int | None
    color: bool

    def write(self, text: str) -> None:
        """Write the text and flush. Characters that the stream's encoding lacks become '?'. Raises
        OSError (BrokenPipeError if the reader has closed the pipe)."""
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        self.stream.write(text.encode(encoding, "replace").decode(encoding))
        self.stream.flush()

    def write_line(self, text: str, style: str = "") -> None:
        """Like `write`, but write the text in this style, and then a line break."""
        self.write(self.paint(text, style) + "\n")

    def paint(self, text: str, style: str) -> str:
        """Return `text` in a style whose words are in NAMED ("bold red"). Return `text` unchanged
        if no colours are wanted."""
        codes = ";".join(NAMED[word] for word in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m" if self.color and codes and text else text


def terminal_of(
    stream: TextIO, color: Color = "auto", env: Mapping[str, str] = os.environ
) -> Terminal:
    """Return what the stream can show. `color`: "auto" means colours if the stream is a terminal,
    unless TERM is "dumb" or NO_COLOR is set."""
    try:
        tty = stream.isatty()
    except ValueError:
        # A ValueError means that the stream is closed.
        tty = False
    wanted = color == "always" or (
        color == "auto" and tty and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
    )
    return Terminal(stream, width_of(stream) if tty else None, wanted)


def can_draw_dashboard() -> bool:
    """Return True if the process has a terminal on which it can draw a dashboard and read keys. A
    process that a shell runs in the background (`command &`) has none."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if os.environ.get("TERM") == "dumb" or not all(stream.isatty() for stream in streams):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return True  # The terminal does not control processes.


def width_of(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns


def task_color(task: str) -> int:
    """Return the colour of a task as an SGR code. A task has the same colour in every view. Tasks
    with neighbouring indexes have different colours."""
    role, _, index = task.partition(":")
    named = zlib.crc32(role.encode("utf-8", "replace"))
    offset = (
        int(index) + 3 * (role == "ps") + 5 * (role == "chief")
        if index.isascii() and index.isdigit()
        else named
    )
    return list(TASK_COLORS)[offset % len(TASK_COLORS)]


def run_style(state: str) -> str:
    """Return the style for the state of a run. The state "failing" means that a task has died and
    that the run has not ended yet."""
    return _RUN_STYLES.get(state, "bold yellow")
