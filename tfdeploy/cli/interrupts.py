"""Ctrl-C during a launch: the first rolls it back, the second is asked to wait for that, the third leaves it to the hosts."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

WORDS = "rolling back; once more leaves that to the hosts, which end what has no commit within 60 s\n"


@contextmanager
def patiently() -> Iterator[None]:
    """For the main thread: of several Ctrl-C the second does not raise KeyboardInterrupt."""
    seen = 0

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            os.write(sys.stderr.fileno(), WORDS.encode())  # not print: this may come in the middle of one
            return
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN if seen else before)  # once interrupted, all that is left is to say so
