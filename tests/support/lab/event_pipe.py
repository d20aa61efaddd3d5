"""Make a FIFO for `launch --events`. With it, a test pauses tfdeploy at one event and resumes
it.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import select
import termios
import threading
from pathlib import Path
from typing import Any

from support.stopwatch import Stopwatch

DEADLINE_S = 60.0
POLL_S = 0.1


class EventPipe:
    """A reader of the events that `tfdeploy launch` writes, one line each.

    To pause tfdeploy, the reader does not read the newline at the end of a line. Then tfdeploy's
    next write to the FIFO blocks.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.words = ("--events", str(path))
        self.events: list[dict[str, Any]] = []
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._held = False
        self._reader: threading.Thread | None = None
        self._closed = threading.Event()

    def hold_at(self, kind: str, **data: str) -> dict[str, Any]:
        """Read events until one has the kind `kind` and the fields `data`. Pause tfdeploy at this
        event, and return the event.
        """
        while True:
            event = self._next()
            if event is None:
                raise AssertionError(f"tfdeploy ended before {kind} {data}: {self.events[-3:]}")
            if event["kind"] == kind and all(
                event.get(name, event["data"].get(name)) == value for name, value in data.items()
            ):
                return event

    def go_on(self) -> None:
        """Resume tfdeploy and read all further events."""
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Close the reader, so that tfdeploy cannot write more."""
        self._closed.set()
        if self._reader is not None:
            self._reader.join()
        os.close(self._fd)

    def _drain(self) -> None:
        while self._next() is not None:
            pass

    def _next(self) -> dict[str, Any] | None:
        """Return the next event, but leave its newline in the FIFO. Return None if no process has
        the FIFO open for writing.
        """
        watch = Stopwatch()
        text = b""
        if self._held:
            os.read(self._fd, 1)
            self._held = False
        while True:
            if self._closed.is_set():
                return None
            if not select.select([self._fd], [], [], POLL_S)[0]:
                if self._reader is None and watch.seconds > DEADLINE_S:
                    raise AssertionError(
                        f"no event within {DEADLINE_S:g} s, last {self.events[-1:]}"
                    )
                continue
            waiting = self._waiting()
            if not waiting:
                return None
            if waiting == 1 and (event := _parsed(text)) is not None:
                self._held = True
                self.events.append(event)
                return event
            text += os.read(self._fd, max(1, waiting - 1))

    def _waiting(self) -> int:
        count = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, count)
        return count[0]


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        answer: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return answer
