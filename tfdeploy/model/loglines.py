"""One line of a task's output, as the hosts stored it."""

from __future__ import annotations

from typing import NamedTuple


def more_bytes(count: int) -> str:
    """What stands at the end of a line that is cut."""
    return f"... ({count:,} more bytes)"


class LogLine(NamedTuple):
    """`line` is raw bytes without its end; time is UTC seconds of the run's clock."""

    time: float
    task: str
    host: str
    attempt: int
    stream: str  # "out" or "err"
    line: bytes
    offset: int = 0  # of the line's first byte in the task's log
    ended: bool = True  # by a newline; False: cut off, or not finished yet
