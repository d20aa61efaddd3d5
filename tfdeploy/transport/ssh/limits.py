"""Time-outs for what paramiko waits for without one: a host's reply to a request, and space in its window.

One thread watches all of them: a timer thread each would be a third of the threads of a command on many hosts.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import paramiko

_changed = threading.Condition()
_running: set[_Limit] = set()
_thread: threading.Thread | None = None


class _Limit:
    def __init__(self, channel: paramiko.Channel, wait_s: float) -> None:
        self.channel, self.due = channel, time.monotonic() + wait_s
        self.late = threading.Event()

    def close(self) -> None:
        self.late.set()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the connection may end at this very moment
            self.channel.close()


@contextlib.contextmanager
def closed_after(channel: paramiko.Channel, wait_s: float) -> Iterator[threading.Event]:
    """Within the block the channel is closed after `wait_s`: calls that wait on it raise SSHException or OSError, and the
    event is set."""
    limit = _Limit(channel, wait_s)
    _watch(limit)
    try:
        yield limit.late
    finally:
        with _changed:
            _running.discard(limit)


def _watch(limit: _Limit) -> None:
    global _thread
    with _changed:
        is_first = all(limit.due < each.due for each in _running)
        _running.add(limit)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_run, name="ssh-limits", daemon=True)
            _thread.start()
        elif is_first:
            _changed.notify()


def _run() -> None:
    global _thread
    with _changed:
        while _running:
            now = time.monotonic()
            for limit in [each for each in _running if each.due <= now]:
                _running.discard(limit)
                threading.Thread(target=limit.close, daemon=True).start()  # it may wait for the network
            _changed.wait(min((each.due - now for each in _running), default=0.0))
        _thread = None
