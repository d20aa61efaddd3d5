"""Read stdout and stderr of an SSH channel in one thread, without storing or parsing the bytes."""

from __future__ import annotations

import threading

import paramiko

BLOCK = 1 << 20  # one read returns at most this many bytes
# The errors of a connection that has ended.
BROKEN = (paramiko.SSHException, OSError, EOFError)


class _Wake:
    """An event that paramiko sets when its pipe of stdout or its pipe of stderr gets data.

    A pipe also calls `clear` when it is empty. Here, `clear` does nothing, because the other pipe
    may hold data.
    """

    def __init__(self) -> None:
        self.event = threading.Event()

    def set(self) -> None:
        self.event.set()

    def clear(self) -> None:
        pass


class ChannelReader:
    """Reads stdout and stderr of one SSH channel."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self._wake = _Wake()
        for pipe in (channel.in_buffer, channel.in_stderr_buffer):
            pipe.set_event(self._wake)  # type: ignore[arg-type]

    def read(self, timeout_s: float | None) -> tuple[bytes, bytes] | None:
        """Return the new bytes of (stdout, stderr), or None if both streams have ended.

        If no byte came within `timeout_s` seconds, both values are empty. If `timeout_s` is None,
        there is no time-out.
        """
        out, err, ended = self._receive()
        if not out and not err and not ended:
            self._wake.event.wait(timeout_s)
            out, err, ended = self._receive()
        return None if ended and not out and not err else (out, err)

    def wake(self) -> None:
        """Make `read` return at once. Any other thread may call this."""
        self._wake.set()

    def _receive(self) -> tuple[bytes, bytes, bool]:
        self._wake.event.clear()
        channel = self._channel
        # First check whether the command has ended, then read the pipes. In the opposite order,
        # bytes that arrive between the two steps would be missed.
        ended = bool(channel.eof_received or channel.closed)
        out = channel.recv(BLOCK) if channel.recv_ready() else b""
        err = channel.recv_stderr(BLOCK) if channel.recv_stderr_ready() else b""
        return out, err, ended
