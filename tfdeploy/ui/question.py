"""Ask the operator a question on the terminal. Displays that draw on the terminal pause until the
answer."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Protocol


class Display(Protocol):
    """A view that redraws a part of the terminal, and that would therefore overwrite a question."""

    def pause(self) -> None:
        """Erase the view, and write nothing until `resume`."""

    def resume(self) -> None: ...


# The views that draw on the terminal now.
active: list[Display] = []


def confirm(question: str) -> bool:
    """Ask a yes/no question. Return True if the answer is y or yes."""
    return (ask(f"{question} (yes/no)") or "").lower() in ("y", "yes")


def ask(question: str) -> str | None:
    """Ask the question and return the answer; None if the input has ended. The question is written
    to stderr, and only if stdin is a terminal."""
    displays = tuple(active)
    for display in displays:
        display.pause()
    try:
        asks = sys.stdin.isatty()
        if asks:
            print(question, end=" ", file=sys.stderr, flush=True)
        answer = ""
        try:
            answer = sys.stdin.readline()
        except UnicodeDecodeError:
            # An answer that cannot be decoded counts as an empty answer.
            answer = "\n"
        finally:
            # After Ctrl-C or Ctrl-D the cursor is still in the line of the question, so a line
            # break is written.
            if asks and not answer.endswith("\n"):
                with suppress(OSError):
                    print(file=sys.stderr, flush=True)
        return answer.strip() if answer else None
    finally:
        for display in reversed(displays):
            display.resume()
