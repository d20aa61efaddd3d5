"""Recognise which lines of a log belong to one Python traceback."""

from __future__ import annotations

from tfdeploy.model.loglines import LogLine

HEAD = b"Traceback (most recent call last):"
# The maximum number of lines and bytes of a traceback that are held back.
MOST_LINES = 1000
MOST_BYTES = 256 << 10
# The beginnings of the lines that connect two tracebacks.
_LINKS = (b"During handling of the above exception", b"The above exception was the direct cause")
_BLANKS = (b" ", b"\t")


class Traceback:
    """A traceback and the tracebacks of its chain, which are read line by line.

    `raised`: True once the line that names the exception has arrived.
    """

    def __init__(self, head: LogLine) -> None:
        self.raised = False
        self._last = head
        # The text before the traceback's first words, for example the prefix of a logger. The
        # following lines may have the same prefix.
        self._prefix = head.line.partition(HEAD)[0] if HEAD in head.line else b""

    def takes(self, line: LogLine) -> bool:
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
