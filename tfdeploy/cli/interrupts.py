"""Ctrl-C, SIGTERM and SIGHUP while something can be rolled back: the first one starts the rollback.

The second Ctrl-C or SIGTERM only prints what the third one does: it ends tfdeploy and leaves the
rollback to the hosts. A closed terminal sends SIGHUP several times, so only the first one counts.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

ROLLING_BACK = (
    "rolling back; once more leaves that to the hosts, which end what has no commit within 60 s"
)
RELEASING_LOCKS = (
    "letting go of the hosts' locks; once more leaves that to the hosts, which do it when this "
    "session ends"
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signalled(KeyboardInterrupt):
    """Like KeyboardInterrupt, but the process then ends by this signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number))
        self.number = number


@contextmanager
def interruptible_once(second_message: str = ROLLING_BACK) -> Iterator[None]:
    """For the main thread. A signal that is ignored (by `nohup`, for example) stays ignored. An
    interrupt that the block swallows is raised at its end."""
    received = 0
    first: KeyboardInterrupt | None = None

    def handle_signal(number: int, frame: FrameType | None) -> None:
        nonlocal received, first
        if received and number == signal.SIGHUP:
            return
        received += 1
        if received == 2:
            with suppress(OSError):  # the terminal has gone
                # not print: the handler may interrupt a print
                os.write(sys.stderr.fileno(), f"{second_message}\n".encode())
            return
        interrupt = KeyboardInterrupt() if number == signal.SIGINT else Signalled(number)
        first = first or interrupt
        raise interrupt

    handled_signals = [
        number for number in _SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)
    ]
    old_handlers = {number: signal.signal(number, handle_signal) for number in handled_signals}
    try:
        yield
        if first is not None:
            raise first
    finally:
        # once interrupted, the process only reports it and ends
        for number, handler in old_handlers.items():
            signal.signal(number, signal.SIG_IGN if received else handler)


def end_interrupted(interrupt: KeyboardInterrupt) -> int:
    """Say that the process was interrupted; end it by the signal if there was one, else return the
    exit code."""
    if threading.current_thread() is threading.main_thread():
        # A second Ctrl-C while the process ends must not replace the exit code 130 by a death by
        # signal.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):  # the terminal has gone
        print("interrupted", file=sys.stderr, flush=True)
    if isinstance(interrupt, Signalled):
        _end_by_signal(interrupt.number)
    return 130


def _end_by_signal(number: int) -> NoReturn:
    """Ends this process by the signal, so that its parent sees which one it was."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the signal is blocked
