"""Start a command on an open SSH channel."""

from __future__ import annotations

import contextlib

import paramiko

from tfdeploy.errors import HostFailed
from tfdeploy.transport.ssh import connect_timeout
from tfdeploy.transport.ssh.channel_reader import BROKEN

START_S = 60.0  # sshd must confirm within this many seconds that a command has started


class _ChannelRequest:
    """A request on a channel, in the form in which `connect_timeout` limits its time.

    After a time-out, `connect_timeout` calls `close`. paramiko itself would wait for ever.
    """

    received = 0

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def close(self) -> None:
        """Close the channel, so that the thread that waits for the reply gets an error."""
        with contextlib.suppress(*BROKEN):
            self._channel.close()


def start_command(channel: paramiko.Channel, line: str, host: str) -> None:
    """Start the command line `line` on the channel. `host`: the host's name in errors.

    Raises HostFailed if sshd does not confirm the start within START_S seconds. Also raises the
    errors of paramiko.
    """
    with connect_timeout.time_limit(START_S) as wait:
        wait.link = _ChannelRequest(channel)
        try:
            channel.exec_command(line)
        except (paramiko.SSHException, OSError) as error:
            if wait.over:
                raise HostFailed(
                    f"the host's sshd did not start a command within {START_S:g} s", where=host
                ) from error
            raise
