"""Stored lines of tasks to text, JSON or raw bytes, in big batches: `tfdeploy logs`.

In text every line is sanitised; one check passes a whole batch that is printable ASCII, as nearly all are.
When the reader closes the pipe, printing ends without an error.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from json.encoder import encode_basestring_ascii as quoted
from operator import attrgetter
from typing import Literal

from tfdeploy.model.loglines import LogLine
from tfdeploy.model.words import iso_z
from tfdeploy.ui.sanitise import clean, is_plain
from tfdeploy.ui.terminal import task_color

Output = Literal["text", "json", "raw"]
LINE_CHARS = 1 << 20
_BATCH_LINES = 1000
_BATCH_BYTES = 4 << 20  # lines may be a megabyte each
_FEW_LINES = 16  # between two checks of how many bytes are pending
_FLUSH_S = 0.03
_BYTES = attrgetter("line")


class LinePrinter:
    """Writes LogLines to a file descriptor. `labels`: the expected "task@host", for aligned prefixes."""

    def __init__(
        self,
        fd: int,
        output: Output = "text",
        *,
        run: str = "",
        labels: Iterable[str] = (),
        timestamps: bool = False,
        color: bool = False,
        encoding: str = "utf-8",
    ) -> None:
        self._fd = fd
        formats: dict[Output, Callable[[list[LogLine]], bytes]] = {"text": self._text, "json": self._json, "raw": _raw}
        self._format = formats[output]
        self._run = run
        self._timestamps, self._color, self._encoding = timestamps, color, encoding
        self._width = max((len(label) for label in labels), default=0)
        self._prefixes: dict[tuple[str, str], bytes] = {}
        self._stamp = (-1.0, "")
        self._pending: deque[LogLine] = deque()
        self._writing = threading.Lock()
        self._gone = False
        self._failed: OSError | None = None

    def write_all(self, lines: Iterable[LogLine], *, follow: bool = False) -> bool:
        """False when the reader closed the pipe before the end. `follow`: each line is written within 30 ms, however
        slowly lines come. Raises OSError."""
        stop = threading.Event()
        flusher = threading.Thread(target=self._flush_every, args=(stop,), daemon=True, name="log flush") if follow else None
        if flusher:
            flusher.start()
        try:
            rest, waiting = iter(lines), 0
            while batch := list(islice(rest, 1 if follow else _FEW_LINES)):
                self._pending.extend(batch)
                waiting += sum(map(len, map(_BYTES, batch)))
                if len(self._pending) >= _BATCH_LINES or waiting >= _BATCH_BYTES:
                    self._flush()
                    waiting = 0
                if self._gone:
                    return False
        finally:
            stop.set()
            if flusher:
                flusher.join()
            self._flush()
        if self._failed is not None:
            raise self._failed
        return not self._gone

    def _flush_every(self, stop: threading.Event) -> None:
        while not stop.wait(_FLUSH_S) and not self._gone:
            self._flush()

    def _flush(self) -> None:
        with self._writing:
            batch = [self._pending.popleft() for _ in range(len(self._pending))]
            if batch and not self._gone:
                try:
                    _write_all(self._fd, self._format(batch))
                except BrokenPipeError:
                    self._gone = True
                except OSError as error:  # a full disk; raised where the lines are handed in
                    self._gone, self._failed = True, error

    def _text(self, batch: list[LogLine]) -> bytes:
        bodies = [line.line for line in batch]
        if not is_plain(b"".join(bodies)):
            bodies = [body if is_plain(body) else clean(body, LINE_CHARS).encode(self._encoding, "replace") for body in bodies]
        parts = []
        task, host, prefix = "", "", b""
        for line, body in zip(batch, bodies, strict=True):
            if line.task is not task or line.host is not host:  # most come in long runs of one task
                task, host = line.task, line.host
                prefix = self._prefixes.get((task, host)) or self._prefix(task, host)
            parts.append(f"{self._iso(line.time)} ".encode() + prefix + body if self._timestamps else prefix + body)
        parts.append(b"")
        return b"\n".join(parts)

    def _prefix(self, task: str, host: str) -> bytes:
        label = f"{clean(task, 80)}@{clean(host, 80)}"
        if len(label) > self._width:
            self._width = len(label)
            self._prefixes.clear()
        text = label.ljust(self._width)
        if self._color:
            text = f"\x1b[{task_color(task)}m{text}\x1b[0m"
        self._prefixes[task, host] = prefix = f"{text} | ".encode(self._encoding, "replace")
        return prefix

    def _iso(self, time: float) -> str:
        """UTC seconds as text, always with milliseconds. The last one is kept: many lines share their chunk's time."""
        if time != self._stamp[0]:
            text = iso_z(time) or ""
            self._stamp = time, text if "." in text else text[:-1] + ".000Z"
        return self._stamp[1]

    def _json(self, batch: list[LogLine]) -> bytes:
        parts = []
        run = json.dumps(self._run)
        for time, task, host, attempt, stream, line, *_ in batch:
            parts.append(
                f'{{"time": "{self._iso(time)}", "run": {run}, "task": {quoted(task)}, "host": {quoted(host)}, '
                f'"attempt": {attempt}, "stream": "{stream}", "line": {quoted(line.decode("utf-8", "replace"))}}}\n'
            )
        return "".join(parts).encode("ascii")


def _raw(batch: list[LogLine]) -> bytes:
    """As the program wrote it."""
    return b"".join([part for line in batch for part in (line.line, b"\n" if line.ended else b"")])


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
