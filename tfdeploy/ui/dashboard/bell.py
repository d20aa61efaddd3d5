"""Wakes the thread that draws, from any thread: a pipe that it can wait for beside the keyboard."""

from __future__ import annotations

import contextlib
import os


class Bell:
    """`fd` can be read from `ring` to `quiet`."""

    def __init__(self) -> None:
        self.fd, self._end = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._end, False)
        self._rung = False

    def ring(self) -> None:
        if not self._rung:
            self._rung = True
            with contextlib.suppress(OSError):  # full, and so it rings already
                os.write(self._end, b"\0")

    def quiet(self) -> None:
        """Call it before looking at what came: what comes later rings again."""
        self._rung = False
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fd, 4096):
                pass

    def __del__(self) -> None:
        for fd in (self.fd, self._end):
            with contextlib.suppress(OSError):
                os.close(fd)
