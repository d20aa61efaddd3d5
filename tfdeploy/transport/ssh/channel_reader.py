"""Reads stdout and stderr of a channel in one thread. It buffers and interprets nothing."""

from __future__ import annotations

import threading

import paramiko

BLOCK = 1 << 20


class _Wake:
    """The event that paramiko's two pipes set. A pipe also clears it when it is empty itself;
    `clear` ignores that, because the other pipe may be full."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def set(self) -> None:
        self.event.set()

    def clear(self) -> None:
        pass


class ChannelReader:
    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self._wake = _Wake()
        for pipe in (channel.in_buffer, channel.in_stderr_buffer):
            pipe.set_event(self._wake)  # type: ignore[arg-type]

    def read(self, timeout_s: float | None) -> tuple[bytes, bytes] | None:
        """(stdout, stderr) as far as they came; both empty after `timeout_s`; None at the end of
        both."""
        out, err, ended = self._receive()
        if not out and not err and not ended:
            self._wake.event.wait(timeout_s)
            out, err, ended = self._receive()
        return None if ended and not out and not err else (out, err)

    def wake(self) -> None:
        """Lets `read` return from another thread."""
        self._wake.set()

    def _receive(self) -> tuple[bytes, bytes, bool]:
        self._wake.event.clear()
        channel = self._channel
        # asked first: what came before is then in the pipes
        ended = bool(channel.eof_received or channel.closed)
        out = channel.recv(BLOCK) if channel.recv_ready() else b""
        err = channel.recv_stderr(BLOCK) if channel.recv_stderr_ready() else b""
        return out, err, ended
