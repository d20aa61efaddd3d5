"""Connect a command on a channel of an open session to three local descriptors."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator

import paramiko

from tfdeploy.transport.protocols import Pipes
from tfdeploy.transport.ssh.channel_reader import ChannelReader

SEND_BYTES = 128 << 10  # most bytes of one read
NOISE_BYTES = 1 << 20  # most output in which the mark is searched
STATUS_S = 10.0  # how long to wait for the exit code after the output has ended
LOST = 255  # the exit code of ssh after a lost connection
_BROKEN = (paramiko.SSHException, OSError, EOFError)


class ChannelCommand:
    """An implementation of protocols.RemoteCommand.

    `channel`: a channel whose command has been started.
    """

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
        """Copy `source` to the command's input until `source` ends.

        `source` ends when the program that writes to it ends.
        """
        with contextlib.suppress(*_BROKEN), os.fdopen(source, "rb", buffering=0) as pipe:
            while block := pipe.read(SEND_BYTES):
                self._channel.sendall(block)
            self._channel.shutdown_write()

    def _output(self, errors: int) -> Iterator[bytes]:
        """Yield blocks of stdout. stderr is written to the descriptor `errors`."""
        reader = ChannelReader(self._channel)
        while (got := reader.read(None)) is not None:
            write_all(errors, got[1])
            yield got[0]


def copy_after(mark: bytes, blocks: Iterable[bytes], target: int) -> None:
    """Write the bytes after `mark` to the descriptor `target`. Raises OSError.

    A login shell may print before the command prints `mark`. If the mark does not come within
    NOISE_BYTES bytes, these bytes are dropped and the later ones are written.
    """
    seen, after_mark = b"", not mark
    for block in blocks:
        if not after_mark:
            seen += block
            after_mark = mark in seen or len(seen) > NOISE_BYTES
            block = seen.partition(mark)[2] if after_mark else b""
        write_all(target, block)


def write_all(target: int, block: bytes) -> None:
    """Write the whole block to a pipe, which may accept only a part of it at once."""
    while block:
        block = block[os.write(target, block) :]
