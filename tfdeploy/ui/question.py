"""A question on the terminal: whatever draws there stops until the operator has answered."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Protocol


class Display(Protocol):
    """Draws a part of the terminal again and again, and would draw over a question."""

    def pause(self) -> None:
        """Removes what is drawn, and writes nothing until `resume`."""

    def resume(self) -> None: ...


_active: list[Display] = []


def begin_drawing(display: Display) -> None:
    _active.append(display)


def end_drawing(display: Display) -> None:
    with suppress(ValueError):  # it was not begun
        _active.remove(display)


def agrees(question: str) -> bool:
    """Whether the operator answers y or yes."""
    return (ask(f"{question} (yes/no)") or "").lower() in ("y", "yes")


def ask(question: str) -> str | None:
    """The answer, None at the end of input. The question goes to stderr; it is not written where stdin is no terminal."""
    displays = tuple(_active)
    for display in displays:
        display.pause()
    try:
        asks = sys.stdin.isatty()
        if asks:
            print(question, end=" ", file=sys.stderr, flush=True)
        answer = ""
        try:
            answer = _read_line()
        finally:
            if asks and not answer.endswith("\n"):  # Ctrl-C or Ctrl-D: the cursor still stands behind the question
                with suppress(OSError):
                    print(file=sys.stderr, flush=True)
        return answer.strip() if answer else None
    finally:
        for display in reversed(displays):
            display.resume()


def _read_line() -> str:
    try:
        return sys.stdin.readline()
    except UnicodeDecodeError:  # no answer is written in other bytes
        return "\n"
