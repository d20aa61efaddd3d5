"""Begins a command on a channel that is open."""

from __future__ import annotations

import paramiko

from tfdeploy.errors import HostFailed
from tfdeploy.transport.ssh.limits import closed_after

START_S = 60.0


def begin(channel: paramiko.Channel, line: str, host: str) -> None:
    """Starts a command there. Raises HostFailed where sshd does not confirm it in time, and paramiko's errors."""
    with closed_after(channel, START_S) as late:
        try:
            channel.exec_command(line)
        except (paramiko.SSHException, OSError) as error:
            if late.is_set():
                raise HostFailed(f"its sshd did not start a command within {START_S:g} s", where=host) from error
            raise
