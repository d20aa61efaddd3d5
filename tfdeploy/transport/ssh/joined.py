"""A command on a channel of an open session, joined to three descriptors of this machine."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator

import paramiko

from tfdeploy.transport.protocols import Pipes
from tfdeploy.transport.ssh.channel_reader import ChannelReader

SEND_BYTES = 128 << 10
NOISE_BYTES = 1 << 20
STATUS_S = 10.0  # until sshd has sent the exit code of a command whose output has ended
LOST = 255  # as ssh ends whose connection broke
_BROKEN = (paramiko.SSHException, OSError, EOFError)


class ChannelCommand:
    """protocols.RemoteCommand. `channel`: its command has begun."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def join(self, pipes: Pipes, mark: bytes = b"") -> int:
        threading.Thread(target=self._feed, args=(os.dup(pipes[0]),), daemon=True).start()
        with contextlib.suppress(*_BROKEN):
            copy_after(mark, self._output(pipes[2]), pipes[1])
            self._channel.status_event.wait(STATUS_S)
        self.close()
        if self._channel.exit_status >= 0:
            return self._channel.exit_status
        with contextlib.suppress(OSError):
            os.write(pipes[2], b"the connection ended\n")
        return LOST

    def close(self) -> None:
        with contextlib.suppress(*_BROKEN):
            self._channel.close()

    def _feed(self, source: int) -> None:
        """Send what comes from `source`, then its end. `source` ends with the program behind it."""
        with contextlib.suppress(*_BROKEN), os.fdopen(source, "rb", buffering=0) as pipe:
            while block := pipe.read(SEND_BYTES):
                self._channel.sendall(block)
            self._channel.shutdown_write()

    def _output(self, errors: int) -> Iterator[bytes]:
        reader = ChannelReader(self._channel)
        while (got := reader.read(None)) is not None:
            write_all(errors, got[1])
            yield got[0]


def copy_after(mark: bytes, blocks: Iterable[bytes], target: int) -> None:
    """Write the bytes that come after `mark` to the descriptor `target`: a login shell may print
    before the command does. Raises OSError."""
    seen, after_mark = b"", not mark
    for block in blocks:
        if not after_mark:
            seen += block
            after_mark = mark in seen or len(seen) > NOISE_BYTES
            block = seen.partition(mark)[2] if after_mark else b""
        write_all(target, block)


def write_all(target: int, block: bytes) -> None:
    """Write to a pipe that takes as much as it has space for."""
    while block:
        block = block[os.write(target, block) :]
