"""Read stdout and stderr of a channel in one thread, without buffering or parsing."""

from __future__ import annotations

import threading

import paramiko

BLOCK = 1 << 20  # most bytes of one read


class _Wake:
    """The event that both of paramiko's pipes set.

    A pipe also calls `clear` when it is empty. That call is ignored, because the other pipe may
    hold data.
    """

    def __init__(self) -> None:
        self.event = threading.Event()

    def set(self) -> None:
        self.event.set()

    def clear(self) -> None:
        pass


class ChannelReader:
    """Reads both outputs of one channel."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self._wake = _Wake()
        for pipe in (channel.in_buffer, channel.in_stderr_buffer):
            pipe.set_event(self._wake)  # type: ignore[arg-type]

    def read(self, timeout_s: float | None) -> tuple[bytes, bytes] | None:
        """Return the new bytes of (stdout, stderr), or None if both streams have ended.

        Both are empty if no byte came within `timeout_s` seconds. None: no time-out.
        """
        out, err, ended = self._receive()
        if not out and not err and not ended:
            self._wake.event.wait(timeout_s)
            out, err, ended = self._receive()
        return None if ended and not out and not err else (out, err)

    def wake(self) -> None:
        """Make `read` return. Call this from another thread."""
        self._wake.set()

    def _receive(self) -> tuple[bytes, bytes, bool]:
        self._wake.event.clear()
        channel = self._channel
        # The end is checked before the pipes are read, so that no byte before the end is missed.
        ended = bool(channel.eof_received or channel.closed)
        out = channel.recv(BLOCK) if channel.recv_ready() else b""
        err = channel.recv_stderr(BLOCK) if channel.recv_stderr_ready() else b""
        return out, err, ended
