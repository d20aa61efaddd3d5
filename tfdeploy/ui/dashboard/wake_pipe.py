"""Wake the thread that draws the dashboard, from any other thread, by a pipe. The drawing thread
waits for the pipe and the keyboard at the same time."""

from __future__ import annotations

import contextlib
import os


class WakePipe:
    """A wake-up pipe. After `wake`, the descriptor `fd` is readable until `drain` is called."""

    def __init__(self) -> None:
        self.fd, self._end = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._end, False)
        self._rung = False

    def wake(self) -> None:
        if not self._rung:
            self._rung = True
            # An OSError means that the pipe is full. Then `fd` is readable without this byte.
            with contextlib.suppress(OSError):
                os.write(self._end, b"\0")

    def drain(self) -> None:
        """Empty the pipe. Call this method before reading the queue, so that an event that arrives
        later wakes the drawing thread again."""
        self._rung = False
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fd, 4096):
                pass

    def __del__(self) -> None:
        for fd in (self.fd, self._end):
            with contextlib.suppress(OSError):
                os.close(fd)
