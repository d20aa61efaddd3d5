"""Ctrl-C, SIGTERM and SIGHUP while something can be rolled back: the first one does that, the others let it come to its end.

Of those that come again, the second Ctrl-C or SIGTERM says what the third one does: leave it to the hosts. A closed
terminal sends SIGHUP several times, so that only the first counts.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

ROLLING_BACK = "rolling back; once more leaves that to the hosts, which end what has no commit within 60 s"
LETTING_GO = "letting go of the hosts' locks; once more leaves that to the hosts, which do it when this session ends"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signalled(KeyboardInterrupt):
    """As Ctrl-C, but what comes to its end by it ends by this signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number))
        self.number = number


@contextmanager
def patiently(words: str = ROLLING_BACK) -> Iterator[None]:
    """For the main thread. A signal that is ignored (by `nohup`, say) stays so. One that the block passes over is raised at its
    end."""
    seen = 0
    first: KeyboardInterrupt | None = None

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal seen, first
        if seen and number == signal.SIGHUP:
            return
        seen += 1
        if seen == 2:
            with suppress(OSError):  # the terminal has gone
                os.write(sys.stderr.fileno(), f"{words}\n".encode())  # not print: this may come in the middle of one
            return
        interrupt = KeyboardInterrupt() if number == signal.SIGINT else Signalled(number)
        first = first or interrupt
        raise interrupt

    heard = [number for number in _SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, interrupted) for number in heard}
    try:
        yield
        if first is not None:
            raise first
    finally:
        for number, handler in before.items():  # once interrupted, all that is left is to say so
            signal.signal(number, signal.SIG_IGN if seen else handler)


def die_of(number: int) -> NoReturn:
    """Whoever waits for this process sees by what it ended."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # it is blocked
