"""Write stored lines of tasks as text, JSON or raw bytes, in big batches, for `tfdeploy logs`.

In text, every line is sanitised. Nearly all batches are printable ASCII and need no change; a
single check of the whole batch finds this. When the reader closes the pipe, printing ends without
an error.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring_ascii as quoted
from operator import attrgetter
from time import monotonic
from typing import Literal, NamedTuple

from tfdeploy.model.loglines import HEAD, Batch, LineBlock, LogLine, format_more_bytes, lines_of
from tfdeploy.text.row_values import iso_z
from tfdeploy.text.user_regexes import search_interruptibly
from tfdeploy.ui.logs.log_blocks import TracebackBlocks
from tfdeploy.ui.logs.log_folds import LineFolder
from tfdeploy.ui.sanitise import are_printable_ascii, clean, clean_line, is_printable_ascii
from tfdeploy.ui.terminal import task_color

Output = Literal["text", "json", "raw"]
# At most this many characters of a line are shown. A longer line arrives in pieces, each of this
# many bytes (see operations/tasklogs/split_lines.py).
LINE_CHARS = 1 << 20
# The maximum number of prefixes ("task@host | ") that are cached.
_MOST_PREFIXES = 4096
# The pending lines are formatted as one batch once there are _BATCH_LINES lines or _BATCH_BYTES
# bytes. The bytes count too, because a single line may have a megabyte.
_BATCH_LINES = 1000
_BATCH_BYTES = 4 << 20
# Formatted text is written once it has this many bytes.
_READY_BYTES = 1 << 18
# The number of pending bytes is checked after this many lines.
_FEW_LINES = 16
# While new lines are followed, pending lines are written at this interval, in seconds.
_FLUSH_S = 0.03
_BYTES = attrgetter("line")
# The escape sequences before and after a highlighted match.
_PAINT = "\x1b[1;31m"
_UNPAINT = "\x1b[0m"


class _HighlightedLine(LogLine):
    """A line that is already sanitised, and that contains escape sequences for colours."""

    __slots__ = ()


class LinePrinter:
    """Writes LogLines to a file descriptor.

    `labels`: the expected labels "task@host", so that prefixes are aligned from the first line on.
    `highlight` and `fold` have an effect on text output only. `highlight`: expressions whose
    matches are coloured, if `color` is set. `fold`: True to print equal lines of several tasks as
    one."""

    def __init__(
        self,
        fd: int,
        output: Output = "text",
        *,
        run: str = "",
        labels: Iterable[str] = (),
        timestamps: bool = False,
        color: bool = False,
        highlight: Sequence[re.Pattern[str]] = (),
        fold: bool = False,
    ) -> None:
        labels = tuple(labels)
        self._fd = fd
        self._format = {"text": self._format_text, "json": self._format_json, "raw": _format_raw}[
            output
        ]
        self._run = run
        self._timestamps, self._color = timestamps, color
        self._width = max(map(len, labels), default=0)
        self._prefixes: dict[tuple[str, str], bytes] = {}
        self._highlight = tuple(highlight) if color and output == "text" else ()
        self._blocks = TracebackBlocks()
        self._folds = LineFolder(len(labels)) if fold else None
        self._cuts: dict[tuple[str, str, str], _CutLine] = {}
        self._is_text, self._is_raw = output == "text", output == "raw"
        self._follow = False
        self._stamp = (-1.0, "")
        self._pending: deque[LogLine] = deque()
        # The number of bytes in the pending lines.
        self._waiting = 0
        # Formatted text that is not written yet.
        self._ready: list[bytes] = []
        # How many bytes of `_ready` come from blocks that were formatted as a whole.
        self._ready_bytes = 0
        self._writing = threading.Lock()
        self._gone = False
        self._failed: OSError | None = None

    def write(self, batches: Iterable[Batch], *, follow: bool = False) -> bool:
        """Write all batches. Return False if the reader closed the pipe before the end.

        `follow`: write each line within 30 ms, even if few lines are pending. Raises OSError."""
        self._follow = follow
        stop = threading.Event()

        def flush_often() -> None:
            while not stop.wait(_FLUSH_S) and not self._gone:
                self._flush()

        flusher = threading.Thread(target=flush_often, daemon=True, name="log flush")
        if follow:
            flusher.start()
        try:
            for batch in batches:
                self._add_batch(batch)
                if self._gone:
                    break
        finally:
            stop.set()
            if follow:
                flusher.join()
            self._flush(is_end=True)
        if self._failed is not None:
            raise self._failed
        return not self._gone

    def _add_batch(self, batch: Batch) -> None:
        formatted = None
        if isinstance(batch, LineBlock):
            if self._pending:
                # The pending lines precede the new block and may make the labels wider or begin a
                # traceback. So they are formatted first.
                self._flush()
            formatted = self._format_block(batch)
        if formatted is None:
            lines = lines_of(batch)
            for start in range(0, len(lines), _FEW_LINES):
                self._queue_lines(lines[start : start + _FEW_LINES])
            return
        with self._writing:
            self._ready.append(formatted)
            self._ready_bytes += len(formatted)
            if self._ready_bytes >= _READY_BYTES:
                self._write_ready()

    def _queue_lines(self, lines: list[LogLine]) -> None:
        if self._highlight:
            lines = [self._highlighted(line) for line in self._shorten_long_lines(lines)]
        self._pending.extend(lines)
        self._waiting += sum(map(len, map(_BYTES, lines)))
        if len(self._pending) >= _BATCH_LINES or self._waiting >= _BATCH_BYTES:
            self._flush()

    def _format_block(self, block: LineBlock) -> bytes | None:
        """Return the block with the label "task@host | " before each line. Return None if lines may
        need other changes too, so that each line must be examined separately."""
        content = block.content
        if not self._is_text or self._highlight or self._folds or self._is_holding:
            return content if self._is_raw else None
        if (
            len(content) > LINE_CHARS
            or not are_printable_ascii(content)
            or _has_traceback_head(content)
        ):
            return None
        label = self._prefixes.get((block.task, block.host)) or self._prefix(block.task, block.host)
        head = f"{self._iso_time(block.time)} ".encode() + label if self._timestamps else label
        return b"".join((head, content[:-1].replace(b"\n", b"\n" + head), b"\n"))

    def _flush(self, *, is_end: bool = False) -> None:
        with self._writing:
            batch = [self._pending.popleft() for _ in range(len(self._pending))]
            self._waiting = 0
            if batch or self._is_holding:
                self._ready.append(self._format(batch))
            if is_end and self._is_text:
                self._ready.append(self._plain_text(self._release_all()))
            self._write_ready()

    def _write_ready(self) -> None:
        """Write the formatted text. After an error, nothing more is written. If the reader has
        closed the pipe, printing simply ends; any other error is recorded, and `write` raises it at
        its end."""
        unwritten = memoryview(b"".join(self._ready))
        self._ready, self._ready_bytes = [], 0
        try:
            while unwritten and not self._gone:
                unwritten = unwritten[os.write(self._fd, unwritten) :]
        except BrokenPipeError:
            self._gone = True
        except OSError as error:
            self._gone, self._failed = True, error

    def _format_text(self, batch: list[LogLine]) -> bytes:
        bodies = [line.line for line in batch]
        joined = b"".join(bodies)
        is_simple = len(joined) < LINE_CHARS and not _has_traceback_head(joined)
        if is_simple and not self._folds and not self._is_holding:
            return self._prefixed_lines(batch, bodies, plain=is_printable_ascii(joined))
        now = monotonic() if self._follow else None
        batch = self._blocks.arrange(
            batch if self._highlight else self._shorten_long_lines(batch), now
        )
        if self._folds:
            batch = self._folds.arrange(batch, now)
        return self._plain_text(batch)

    @property
    def _is_holding(self) -> bool:
        return (
            self._blocks.is_holding
            or bool(self._cuts)
            or bool(self._folds and self._folds.is_holding)
        )

    def _release_all(self) -> list[LogLine]:
        """Return the lines that are still held back. Call this method once no more lines can
        arrive."""
        batch = self._blocks.release_all()
        if self._folds:
            batch = [*self._folds.arrange(batch, None), *self._folds.release_all()]
        return [*batch, *(cut.more_bytes_line() for cut in self._cuts.values() if cut.more)]

    def _shorten_long_lines(self, batch: list[LogLine]) -> list[LogLine]:
        """Return the lines. A line that arrives in pieces is replaced by its first piece and a text
        with the number of bytes that are left out."""
        shown = []
        for line in batch:
            key = (line.task, line.host, line.stream)
            cut = self._cuts.pop(key, None)
            if cut and cut.is_followed_by(line):
                cut = _CutLine(line, cut.more + len(line.line))
            else:
                if cut and cut.more:
                    shown.append(cut.more_bytes_line())
                cut = _CutLine(line, 0)
                shown.append(line)
            if not line.ended and len(line.line) >= LINE_CHARS:
                self._cuts[key] = cut
            elif cut.more:
                shown.append(cut.more_bytes_line())
        return shown

    def _highlighted(self, line: LogLine) -> LogLine:
        """Return the line with the matches of `highlight` coloured; the same line if there are no
        matches.

        This method must run in the main thread: a match that takes very long blocks all threads,
        and Ctrl-C can end the match only in the main thread."""
        text = clean_line(line.line, LINE_CHARS)
        spans = search_interruptibly(len(text), lambda: self._match_spans(text))
        if not spans or not line.stream:
            return line
        parts, position = [], 0
        for begin, end in spans:
            begin = max(begin, position)
            if end > begin:
                parts += [text[position:begin], _PAINT, text[begin:end], _UNPAINT]
                position = end
        return _HighlightedLine(
            *line._replace(line="".join([*parts, text[position:]]).encode("utf-8", "replace"))
        )

    def _match_spans(self, text: str) -> list[tuple[int, int]]:
        return sorted(
            match.span()
            for pattern in self._highlight
            for match in pattern.finditer(text)
            if match[0]
        )

    def _plain_text(self, batch: list[LogLine]) -> bytes:
        return (
            self._prefixed_lines(batch, [line.line for line in batch], plain=False)
            if batch
            else b""
        )

    def _sanitised(self, line: LogLine) -> bytes:
        if type(line) is _HighlightedLine or (
            is_printable_ascii(line.line) and len(line.line) <= LINE_CHARS
        ):
            return line.line
        return clean_line(line.line, LINE_CHARS).encode("utf-8", "replace")

    def _prefixed_lines(self, batch: list[LogLine], bodies: list[bytes], *, plain: bool) -> bytes:
        if not plain:
            bodies = [self._sanitised(line) for line in batch]
        parts = []
        task, host, prefix = "", "", b""
        for line, body in zip(batch, bodies, strict=True):
            # Most lines follow a line of the same task and host, so the prefix is already known.
            if line.task is not task or line.host is not host:
                task, host = line.task, line.host
                prefix = self._prefixes.get((task, host)) or self._prefix(task, host)
            parts.append(
                f"{self._iso_time(line.time)} ".encode() + prefix + body
                if self._timestamps
                else prefix + body
            )
        parts.append(b"")
        return b"\n".join(parts)

    def _prefix(self, task: str, host: str) -> bytes:
        label = f"{clean(task, 80)}@{clean(host, 80)}"
        # Labels of folded lines do not set the width of all labels, because they may be very long.
        is_wider = len(label) > self._width and "[" not in label and "," not in label
        if is_wider:
            self._width = len(label)
        if is_wider or len(self._prefixes) > _MOST_PREFIXES:
            self._prefixes.clear()
        text = label.ljust(self._width)
        if self._color:
            text = f"\x1b[{task_color(task)}m{text}\x1b[0m"
        self._prefixes[task, host] = prefix = f"{text} | ".encode("utf-8", "replace")
        return prefix

    def _iso_time(self, time: float) -> str:
        """Return UTC seconds as text in ISO 8601, always with milliseconds. The last result is
        cached, because many lines have the same time."""
        if time != self._stamp[0]:
            text = iso_z(time) or ""
            self._stamp = time, text if "." in text else text[:-1] + ".000Z"
        return self._stamp[1]

    def _format_json(self, batch: list[LogLine]) -> bytes:
        parts = []
        run = json.dumps(self._run)
        for time, task, host, attempt, stream, line, *_ in batch:
            parts.append(
                f'{{"time": "{self._iso_time(time)}", "run": {run}, "task": {quoted(task)}, '
                f'"host": {quoted(host)}, '
                f'"attempt": {attempt}, "stream": "{stream}", "line": '
                f"{quoted(line.decode('utf-8', 'replace'))}}}\n"
            )
        return "".join(parts).encode("ascii")


class _CutLine(NamedTuple):
    """A line that arrives in pieces, of which only the first piece is shown. `last`: the last piece
    so far. `more`: the number of bytes after the first piece."""

    last: LogLine
    more: int

    def is_followed_by(self, line: LogLine) -> bool:
        return (line.attempt, line.offset) == (self.last.attempt, self.last.offset + LINE_CHARS)

    def more_bytes_line(self) -> LogLine:
        return self.last._replace(line=format_more_bytes(self.more).encode())


def _has_traceback_head(content: bytes) -> bool:
    """Return True if the content contains HEAD, which begins a traceback. First search for "(",
    which is a part of HEAD, because this is ten times as fast as a search for HEAD."""
    return b"(" in content and HEAD in content


def _format_raw(batch: list[LogLine]) -> bytes:
    """Return the lines as the program wrote them, byte for byte."""
    return b"".join([part for line in batch for part in (line.line, b"\n" if line.ended else b"")])
