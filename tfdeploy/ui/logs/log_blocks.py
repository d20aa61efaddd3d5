"""Keep the lines of a Python traceback together. The lines are held back until the traceback ends;
meanwhile, lines of other tasks are passed on.

A traceback is held back for at most HOLD_S seconds and up to a maximum size, so that delay and
memory are bounded.
"""

from __future__ import annotations

from tfdeploy.model.loglines import HEAD, MOST_BYTES, MOST_LINES, LogLine, TracebackRecogniser

# The maximum number of seconds for which a traceback is held back.
HOLD_S = 0.4


class _TracebackBlock:
    """The lines of one traceback, which are held back. `others`: lines of the same task from the
    other stream, which are passed on after the traceback. `at`: when the first line of the
    traceback arrived, in seconds."""

    def __init__(self, head: LogLine, at: float) -> None:
        self.lines = [head]
        self.others: list[LogLine] = []
        self.since = at
        self._bytes = len(head.line)
        self._traceback = TracebackRecogniser(head)

    def add_if_belongs(self, line: LogLine) -> bool:
        """Add a line of the same task to the block. Return False, without adding the line, if the
        traceback ended before the line."""
        head = self.lines[0]
        if line.attempt != head.attempt or not line.stream:
            return False
        if line.stream != head.stream:
            self.others.append(line)
        elif self._traceback.accept_next(line):
            self.lines.append(line)
        else:
            return False
        self._bytes += len(line.line)
        return True

    @property
    def is_full(self) -> bool:
        return len(self.lines) + len(self.others) >= MOST_LINES or self._bytes >= MOST_BYTES


class TracebackBlocks:
    """Reorders lines so that each traceback is one block.

    The argument `now` of `arrange`: the current time in seconds, of any clock. If `now` is None,
    the times of the lines are used."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], _TracebackBlock] = {}

    @property
    def is_holding(self) -> bool:
        return bool(self._open)

    def arrange(self, lines: list[LogLine], now: float | None) -> list[LogLine]:
        released: list[LogLine] = []
        for line in lines:
            at = line.time if now is None else now
            self._release_expired(at, released)
            key = (line.task, line.host)
            block = self._open.get(key)
            if block is not None and not block.add_if_belongs(line):
                self._release_block(key, released)
                block = None
            elif block is not None:
                if block.is_full:
                    self._release_block(key, released)
                continue
            if HEAD in line.line:
                self._open[key] = _TracebackBlock(line, at)
            else:
                released.append(line)
        if now is not None:
            self._release_expired(now, released)
        return released

    def release_all(self) -> list[LogLine]:
        released: list[LogLine] = []
        for key in list(self._open):
            self._release_block(key, released)
        return released

    def _release_expired(self, at: float, released: list[LogLine]) -> None:
        if self._open:
            for key in [key for key, block in self._open.items() if at - block.since > HOLD_S]:
                self._release_block(key, released)

    def _release_block(self, key: tuple[str, str], released: list[LogLine]) -> None:
        block = self._open.pop(key)
        released += block.lines
        released += block.others
