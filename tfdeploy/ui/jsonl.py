"""Write events as JSON lines, for programs, for replays, and for tests that stop tfdeploy between
two steps.

If the file is a FIFO, the writer waits until the reader has read the whole line with its newline.
So a reader that does not read the newline stops tfdeploy at exactly this event. When the reader
closes the FIFO, no more events are written and the run continues.
"""

from __future__ import annotations

import array
import fcntl
import io
import os
import select
import stat
import termios
import threading
import time
from pathlib import Path

from tfdeploy.errors import UsageError
from tfdeploy.model.events import Event, LineFields, event_to_json
from tfdeploy.model.loglines import LogLine

# The maximum number of seconds between two checks of whether the reader has read a line.
_LONGEST_WAIT_S = 0.01


class EventsFile:
    """A file of events. Any thread may call the object with an Event. The event is appended to the
    file as one line."""

    def __init__(self, path: Path) -> None:
        """Open the file. If the file is a FIFO, wait for its reader. Raises UsageError if the file
        cannot be opened."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(
                f"cannot write events: {error.strerror}",
                where=str(path),
                next="name a file or a FIFO with --events",
            ) from error
        self._file = io.FileIO(fd, "w")
        self._fifo = stat.S_ISFIFO(os.fstat(fd).st_mode)
        self._lock = threading.Lock()

    def take_lines(self, run: str, batch: list[LogLine]) -> None:
        """Append each line of a task as an event. Any thread may call this method."""
        for line in batch:
            data: LineFields = {
                "stream": line.stream,
                "line": line.line.decode("utf-8", "surrogateescape"),
                "offset": line.offset,
            }
            self(Event("line", line.time, run, line.host, line.task, line.attempt, data))

    def __call__(self, event: Event) -> None:
        line = event_to_json(event) + b"\n"
        with self._lock:
            if self._file.closed:
                return
            try:
                unwritten = memoryview(line)
                while unwritten:
                    unwritten = unwritten[self._file.write(unwritten) or 0 :]
                if self._fifo:
                    self._wait_until_read()
            except OSError:
                # The reader has closed the FIFO, or the disk is full. The run goes on without the
                # file.
                self._file.close()

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _wait_until_read(self) -> None:
        wait_s = 0.0002
        while unread_bytes(self._file.fileno()) and not self._is_reader_gone():
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _is_reader_gone(self) -> bool:
        poll = select.poll()
        poll.register(self._file.fileno(), 0)
        return any(events & select.POLLERR for _, events in poll.poll(0))


def unread_bytes(fd: int) -> int:
    """Return how many unread bytes the pipe `fd` has."""
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]
