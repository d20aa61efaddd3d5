"""Connect a command that runs on a channel of an open session to three local file descriptors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

import paramiko

from tfdeploy.machine.threads import start_thread
from tfdeploy.transport.protocols import Pipes
from tfdeploy.transport.ssh.channel_reader import BROKEN, ChannelReader

SEND_BYTES = 128 << 10  # one read returns at most this many bytes
# A command may print a mark before its own output. The mark is searched for only within the first
# NOISE_BYTES bytes.
NOISE_BYTES = 1 << 20
STATUS_S = 10.0  # seconds to wait for the exit code after the end of the output
LOST = 255  # exit code after a lost connection, as in ssh


class ChannelCommand:
    """An implementation of protocols.RemoteCommand.

    `channel`: an SSH channel on which the command has been started.
    """

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def relay_until_end(self, pipes: Pipes, drop_up_to: bytes = b"") -> int:
        start_thread(self._feed, os.dup(pipes[0]))
        with contextlib.suppress(*BROKEN):
            copy_after_mark(drop_up_to, self._output(pipes[2]), pipes[1])
            self._channel.status_event.wait(STATUS_S)
        self.close()
        if self._channel.exit_status >= 0:
            return self._channel.exit_status
        with contextlib.suppress(OSError):
            os.write(pipes[2], b"the connection ended\n")
        return LOST

    def close(self) -> None:
        with contextlib.suppress(*BROKEN):
            self._channel.close()

    def _feed(self, source: int) -> None:
        """Copy the descriptor `source` to the command's input until the end of `source`.

        `source` ends when the program that writes to it ends.
        """
        with contextlib.suppress(*BROKEN), os.fdopen(source, "rb", buffering=0) as pipe:
            while block := pipe.read(SEND_BYTES):
                self._channel.sendall(block)
            self._channel.shutdown_write()

    def _output(self, errors: int) -> Iterator[bytes]:
        """Yield the blocks of the command's stdout. Write its stderr to the descriptor `errors`."""
        reader = ChannelReader(self._channel)
        while (blocks := reader.read(None)) is not None:
            write_all(errors, blocks[1])
            yield blocks[0]


def copy_after_mark(marker: bytes, blocks: Iterable[bytes], target: int) -> None:
    """Write the bytes that come after `marker` to the descriptor `target`. Raises OSError.

    A login shell may print something before the command prints `marker`. If `marker` is not in the
    first NOISE_BYTES bytes, these are dropped and all later bytes are written.
    """
    beginning, after_mark = b"", not marker
    for block in blocks:
        if not after_mark:
            beginning += block
            after_mark = marker in beginning or len(beginning) > NOISE_BYTES
            block = beginning.partition(marker)[2] if after_mark else b""
        write_all(target, block)


def write_all(target: int, block: bytes) -> None:
    """Write the whole block to a pipe, which may accept only a part of the block at once."""
    while block:
        block = block[os.write(target, block) :]
