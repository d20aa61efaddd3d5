"""Handle Ctrl-C, SIGTERM and SIGHUP while something can be rolled back.

The first signal starts the rollback. The second Ctrl-C or SIGTERM prints what a third one would
cause. The third one ends tfdeploy and leaves the rollback to the hosts. A SIGHUP counts only if it
is the first signal, because a closed terminal sends SIGHUP several times.
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
    "rolling back; after a third signal, tfdeploy ends at once, and the hosts end the run by "
    "themselves within 60 s"
)
RELEASING_LOCKS = (
    "releasing the hosts' locks; after a third signal, tfdeploy ends at once, and the hosts "
    "release their locks by themselves"
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class TerminatedBySignal(KeyboardInterrupt):
    """The KeyboardInterrupt that SIGTERM or SIGHUP raises. `number`: the number of the signal.

    At its end, the process kills itself with this signal, so that its parent sees the cause.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number))
        self.number = number


@contextmanager
def interrupt_on_first_signal(second_message: str = ROLLING_BACK) -> Iterator[None]:
    """Raise KeyboardInterrupt on the first signal and print `second_message` on the second one.

    The function works in the main thread only. A signal that was ignored before (by `nohup`, for
    example) stays ignored. If the `with` block suppresses the KeyboardInterrupt, it is raised again
    at the end of the block.
    """
    received = 0
    first: KeyboardInterrupt | None = None

    def handle_signal(number: int, frame: FrameType | None) -> None:
        nonlocal received, first
        if received and number == signal.SIGHUP:
            return
        received += 1
        if received == 2:
            # If the terminal is gone, os.write raises OSError. `print` is not used, because this
            # handler may interrupt another `print`.
            with suppress(OSError):
                os.write(sys.stderr.fileno(), f"{second_message}\n".encode())
            return
        interrupt = KeyboardInterrupt() if number == signal.SIGINT else TerminatedBySignal(number)
        first = first or interrupt
        raise interrupt

    old_handlers = {
        number: signal.signal(number, handle_signal)
        for number in _SIGNALS
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    }
    try:
        yield
        if first is not None:
            raise first
    finally:
        # After an interrupt, the process only prints a message and ends, so it ignores further
        # signals.
        for number, handler in old_handlers.items():
            signal.signal(number, signal.SIG_IGN if received else handler)


def report_interrupt(interrupt: KeyboardInterrupt) -> int:
    """Print that the process was interrupted, and return the exit code 130.

    After SIGTERM or SIGHUP, do not return: end the process by that signal.
    """
    if threading.current_thread() is threading.main_thread():
        # The exit code must stay 130 even if a second Ctrl-C comes now.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):  # raised if the terminal is gone
        print("interrupted", file=sys.stderr, flush=True)
    if isinstance(interrupt, TerminatedBySignal):
        _end_by_signal(interrupt.number)
    return 130


def _end_by_signal(signal_number: int) -> NoReturn:
    """End this process by the signal `signal_number`, so that its parent sees which signal ended
    it."""
    signal.signal(signal_number, signal.SIG_DFL)
    os.kill(os.getpid(), signal_number)
    # The process is still alive only if it blocks the signal.
    os._exit(128 + signal_number)
