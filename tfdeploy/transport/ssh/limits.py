"""Time-outs for what paramiko waits for without one: a host's reply to a request, and space in its window."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import paramiko


@contextlib.contextmanager
def closed_after(channel: paramiko.Channel, wait_s: float) -> Iterator[threading.Event]:
    """Within the block the channel is closed after `wait_s`: calls that wait on it raise SSHException or OSError, and the
    event is set."""
    late = threading.Event()

    def close() -> None:
        late.set()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the connection may end at this very moment
            channel.close()

    timer = threading.Timer(wait_s, close)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
