"""Implement protocols.Session: run commands and the agent over one host's SSH session."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import paramiko

from tfdeploy.errors import HostFailed, HostUnreachable, TfdeployError
from tfdeploy.model.inventory import Host
from tfdeploy.transport.protocols import AgentChannel, Completed, Tunnel
from tfdeploy.transport.quoting import command_line
from tfdeploy.transport.ssh.channel_reader import BROKEN, ChannelReader
from tfdeploy.transport.ssh.command import start_command
from tfdeploy.transport.ssh.connect import CONNECT_S, Connector
from tfdeploy.transport.ssh.errors import printable_line
from tfdeploy.transport.ssh.joined import ChannelCommand
from tfdeploy.transport.ssh.target import Target, resolve
from tfdeploy.transport.ssh.tunnel import LoopbackTunnel

if TYPE_CHECKING:
    import fabric

    from tfdeploy.transport.agent.channel import FramedChannel

MAX_OUTPUT_BYTES = 64 << 20  # maximum size of a command's output, in bytes


class SshSession:
    """An implementation of protocols.Session with a fabric connection."""

    def __init__(self, host: Host, target: Target, connection: fabric.Connection) -> None:
        self.host, self.target, self.connection = host, target, connection
        self._lock = threading.Lock()
        self._agent: FramedChannel | None = None
        self._tunnels = False  # True once a tunnel has been opened
        self.fences: dict[str, int] = {}
        self.by: dict[str, str] = {}  # the operator and the command, for the host's audit log

    @property
    def is_alive(self) -> bool:
        """True if the connection is open."""
        return bool(self.connection.is_connected)

    @property
    def is_idle(self) -> bool:
        """True if the session may be closed: it has no tunnel, no waiting call and no lock."""
        return not self._tunnels and (
            self._agent is None or self._agent.is_lost or self._agent.is_idle
        )

    def agent(self, on_missing: Callable[[], object] = lambda: None) -> AgentChannel:
        # FramedChannel is imported only here, because many sessions run only plain commands.
        from tfdeploy.transport.agent.channel import FramedChannel

        with self._lock:
            if self._agent is None or self._agent.is_lost:
                channel = self._open_session()
                key = getattr(self.connection.transport, "login_key", "")
                by = {**self.by, "key": key} if self.by else {}
                agent = FramedChannel(
                    channel, self.host.name, self.fences, by, self.host.bwlimit or 0
                )
                try:
                    with self._translate_errors():
                        agent.open(self.host.workdir, self.host.python, on_missing)
                except TfdeployError:
                    channel.close()
                    raise
                self._agent = agent
            return self._agent

    def run(self, argv: tuple[str, ...], *, timeout_s: float | None = None) -> Completed:
        began = time.monotonic()
        limit_s = threading.TIMEOUT_MAX if timeout_s is None else timeout_s
        channel = self._open_session()
        with contextlib.closing(channel), self._translate_errors():
            start_command(channel, command_line(argv), self.host.name)
            channel.shutdown_write()
            output = self._read_output(channel, began + limit_s)
            left_s = max(0.0, began + limit_s - time.monotonic())
            if output is None or not channel.status_event.wait(left_s):
                raise HostFailed(
                    f"the command did not end within {timeout_s:g} s; it may still run on the host",
                    where=self.host.name,
                )
        if channel.exit_status < 0 and not self.is_alive:
            raise HostUnreachable(
                "the connection ended while the command ran", where=self.host.name
            )
        code = channel.exit_status if channel.exit_status >= 0 else None
        return Completed(code, *output, time.monotonic() - began)

    def start(self, line: str) -> ChannelCommand:
        channel = self._open_session()
        with self._translate_errors():
            start_command(channel, line, self.host.name)
        return ChannelCommand(channel)

    def tunnel(self, port: int, local_ports: tuple[int, ...] = (0,)) -> Tunnel:
        self._tunnels = True
        return LoopbackTunnel(lambda: self._open_forwarding(port), self.host.name, local_ports)

    def close(self) -> None:
        agent = self._agent
        if agent is not None:
            agent.close()
        with contextlib.suppress(*BROKEN):
            self.connection.close()

    def _open_forwarding(self, port: int) -> paramiko.Channel:
        """Open a connection from the host to a port of the host's own loopback.

        Raises HostFailed if nothing listens on the port or sshd does not allow forwarding, and
        HostUnreachable.
        """
        try:
            return self._open("direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0))
        except paramiko.ChannelException as error:
            what, fix = f"nothing answers on 127.0.0.1:{port} of the host: {error.text}", None
            if error.code == 1:  # this code is SSH_OPEN_ADMINISTRATIVELY_PROHIBITED
                what = "the sshd of the host forwards no connections"
                fix = "write AllowTcpForwarding yes (or local) in sshd_config of this host"
            raise HostFailed(what, where=self.host.name, next=fix) from error

    def _open_session(self) -> paramiko.Channel:
        """Open a channel for a command. Raises HostFailed if sshd refuses, and HostUnreachable."""
        try:
            return self._open("session")
        except paramiko.ChannelException as error:
            raise HostFailed(
                f"sshd opens no further channel on this connection: {error.text} (MaxSessions?)",
                where=self.host.name,
            ) from error

    def _open(self, kind: str, *addresses: tuple[str, int]) -> paramiko.Channel:
        """Open an SSH channel of the type `kind`.

        Raises ChannelException if sshd refuses the channel, and HostUnreachable.
        """
        with self._translate_errors():
            transport = self.connection.transport
            channel: paramiko.Channel = transport.open_channel(kind, *addresses, timeout=CONNECT_S)
            return channel

    def _read_output(
        self, channel: paramiko.Channel, deadline: float
    ) -> tuple[bytes, bytes] | None:
        """Return (stdout, stderr) of a command, or None if they have not ended by the deadline.

        `deadline`: monotonic seconds. Raises HostFailed if there are more than MAX_OUTPUT_BYTES.
        """
        reader = ChannelReader(channel)
        out, err = bytearray(), bytearray()
        while time.monotonic() < deadline:
            blocks = reader.read(max(0.0, deadline - time.monotonic()))
            if blocks is None:
                return bytes(out), bytes(err)
            out += blocks[0]
            err += blocks[1]
            if len(out) + len(err) > MAX_OUTPUT_BYTES:
                raise HostFailed(
                    f"the command wrote more than {MAX_OUTPUT_BYTES} bytes, which is the limit",
                    where=self.host.name,
                )
        return None

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise HostUnreachable if the connection ends within the `with` block."""
        try:
            yield
        except paramiko.ChannelException:
            raise
        except BROKEN as error:
            text = printable_line(str(error).encode())
            what = "the connection ended" + (f": {text}" if text else "")
            raise HostUnreachable(what, where=self.host.name) from error


def open_session(host: Host, connector: Connector) -> SshSession:
    """Connect to the host and return the session.

    Raises HostUnreachable, which names the cause, and ConfigError for an invalid address.
    """
    target = resolve(host)
    return SshSession(host, target, connector.connect(host.name, target))
