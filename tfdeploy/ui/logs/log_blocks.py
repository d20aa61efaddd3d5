"""Print a Python traceback of one task as one block: its lines are held back until it ends, and
other tasks' lines are printed before it.

Lines are held for a short time and up to a size only, so nothing is late by more than HOLD_S, and
memory stays bounded.
"""

from __future__ import annotations

from tfdeploy.model.loglines import LogLine

HEAD = b"Traceback (most recent call last):"
HOLD_S = 0.4
MOST_LINES = 1000
MOST_BYTES = 256 << 10
_LINKS = (b"During handling of the above exception", b"The above exception was the direct cause")
_BLANKS = (b" ", b"\t")


class _Block:
    """A traceback. `others`: lines of the same task that do not belong to it; they are shown after
    it."""

    def __init__(self, head: LogLine, at: float) -> None:
        self.lines = [head]
        self.others: list[LogLine] = []
        self.since = at
        self._bytes = len(head.line)
        # of a logger, say: the lines that follow may have it too
        self._before = head.line[: head.line.index(HEAD)]
        self._raised = False  # whether the line that names the exception has come

    def takes(self, line: LogLine) -> bool:
        """Add the line. Return False if the traceback has ended before it."""
        head = self.lines[0]
        if line.attempt != head.attempt:
            return False
        if line.stream != head.stream:
            self._add(self.others, line)
            return True
        text = line.line.removeprefix(self._before)
        if HEAD in text:
            self._raised = False
        elif not self._raised:
            self._raised = not (text.startswith(_BLANKS) or line.line.startswith(_BLANKS))
        elif text.strip() and not text.startswith(_LINKS) and line.time != self.lines[-1].time:
            return False
        self._add(self.lines, line)
        return True

    def _add(self, where: list[LogLine], line: LogLine) -> None:
        where.append(line)
        self._bytes += len(line.line)

    @property
    def full(self) -> bool:
        return len(self.lines) + len(self.others) >= MOST_LINES or self._bytes >= MOST_BYTES


class TracebackBlocks:
    """Lines in, lines out, in another order. `now`: seconds of any clock; None: the time in the
    lines counts."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], _Block] = {}

    @property
    def holding(self) -> bool:
        return bool(self._open)

    def arrange(self, lines: list[LogLine], now: float | None) -> list[LogLine]:
        out: list[LogLine] = []
        for line in lines:
            at = line.time if now is None else now
            self._release(at, out)
            key = (line.task, line.host)
            block = self._open.get(key)
            if block is not None and not block.takes(line):
                self._close(key, out)
                block = None
            elif block is not None:
                if block.full:
                    self._close(key, out)
                continue
            if HEAD in line.line:
                self._open[key] = _Block(line, at)
            else:
                out.append(line)
        if now is not None:
            self._release(now, out)
        return out

    def rest(self) -> list[LogLine]:
        out: list[LogLine] = []
        for key in list(self._open):
            self._close(key, out)
        return out

    def _release(self, at: float, out: list[LogLine]) -> None:
        if self._open:
            for key in [key for key, block in self._open.items() if at - block.since > HOLD_S]:
                self._close(key, out)

    def _close(self, key: tuple[str, str], out: list[LogLine]) -> None:
        block = self._open.pop(key)
        out += block.lines
        out += block.others
