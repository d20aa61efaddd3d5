"""Define lines of a task's output as the hosts stored them, and recognise the lines of a Python
traceback. Lines are stored singly, or in blocks of whole lines that have the same time."""

from __future__ import annotations

from functools import partial
from itertools import accumulate, count, repeat
from operator import add
from typing import NamedTuple

from tfdeploy.agent.metric_lines import last_progress_state as last_progress_state

HEAD = b"Traceback (most recent call last):"
# The maximum number of lines and bytes of a traceback that are held back before they are shown.
MOST_LINES = 1000
MOST_BYTES = 256 << 10
# The beginnings of the lines that connect two tracebacks.
_LINKS = (b"During handling of the above exception", b"The above exception was the direct cause")
_BLANKS = (b" ", b"\t")


def format_more_bytes(byte_count: int) -> str:
    """Return the text that replaces the end of a shortened line. It states how many bytes are left
    out."""
    return f"... ({byte_count:,} more bytes)"


class LogLine(NamedTuple):
    """One line. `line`: raw bytes without the newline. `time`: UTC seconds by the run's clock."""

    time: float
    task: str
    host: str
    attempt: int
    stream: str  # "out" or "err"
    line: bytes
    offset: int = 0  # position of the line's first byte in the task's log
    # True if a newline ends the line; False: the line was cut off, or is not finished yet
    ended: bool = True


class LineBlock(NamedTuple):
    """Whole lines with the same time, attempt and stream. Single lines are made from a block only
    on demand, because a log may have millions of lines."""

    time: float
    task: str
    host: str
    attempt: int
    stream: str
    content: bytes  # ends with a newline
    offset: int

    @property
    def lines(self) -> list[LogLine]:
        texts = self.content.split(b"\n")
        del texts[-1]
        starts = map(add, accumulate(map(len, texts), initial=self.offset), count())
        same = map(repeat, (self.time, self.task, self.host, self.attempt, self.stream))
        return list(map(_line, zip(*same, texts, starts, repeat(True))))


Batch = LineBlock | list[LogLine]  # lines with the same time, at least one
# Make a LogLine faster than LogLine(...) does, because a log may have millions of lines.
_line = partial(tuple.__new__, LogLine)


def lines_of(batch: Batch) -> list[LogLine]:
    return batch.lines if isinstance(batch, LineBlock) else batch


def time_of(batch: Batch) -> float:
    return batch.time if isinstance(batch, LineBlock) else batch[0].time


def with_time(batch: Batch, time: float) -> Batch:
    return (
        batch._replace(time=time)
        if isinstance(batch, LineBlock)
        else [line._replace(time=time) for line in batch]
    )


class TracebackRecogniser:
    """Recognises, line by line, the lines of a traceback and of the tracebacks chained to it.

    `raised`: True once the line that names the exception has arrived.
    """

    def __init__(self, head: LogLine) -> None:
        self.raised = False
        self._last = head
        # The text before the traceback's first words, for example the prefix of a logger. The
        # following lines may have the same prefix.
        self._prefix = head.line.partition(HEAD)[0] if HEAD in head.line else b""

    def accept_next(self, line: LogLine) -> bool:
        """Return True if the next line of the same task and stream belongs to the traceback."""
        text = line.line.removeprefix(self._prefix)
        if line.attempt != self._last.attempt:
            return False
        if HEAD in text:
            self.raised = False
        elif not self.raised:
            self.raised = not (text.startswith(_BLANKS) or line.line.startswith(_BLANKS))
        elif text.strip() and not text.startswith(_LINKS) and line.time != self._last.time:
            return False
        self._last = line
        return True
