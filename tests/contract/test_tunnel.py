"""Test a TCP tunnel through an open session to a real sshd: data in both directions, half-closed
connections, refusals, and the end of the session.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tfdeploy.errors import HostFailed, Refused
from tfdeploy.transport.fleet import SshFleet
from tfdeploy.transport.ssh.tunnel import MOST_CONNECTIONS

WITHIN_S = 60


@pytest.fixture
def fleet() -> Iterator[SshFleet]:
    with SshFleet() as opened:
        yield opened


def echo(sock: socket.socket) -> None:
    """Read until the other side closes its direction, then send the bytes back in reverse order and
    close.
    """

    def talk() -> None:
        with contextlib.suppress(OSError), sock:
            whole = b"".join(iter(lambda: sock.recv(65536), b""))
            sock.sendall(whole[::-1])

    threading.Thread(target=talk, daemon=True).start()


def ask(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), WITHIN_S) as sock:
        sock.settimeout(WITHIN_S)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: sock.recv(65536), b""))


def test_many_connections_transfer_data_both_ways(
    ssh_hosts: Any, fleet: SshFleet, listener: Callable[..., int]
) -> None:
    tunnel = fleet.session(ssh_hosts.host("n1").host).tunnel(listener(echo))
    data = [os.urandom(1 << 20) for _ in range(8)]
    got: dict[int, bytes] = {}
    askers = [
        threading.Thread(daemon=True, target=lambda n=n: got.update({n: ask(tunnel.port, data[n])}))
        for n in range(8)
    ]  # type: ignore[misc]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(WITHIN_S)
    assert got == {number: block[::-1] for number, block in enumerate(data)}


def test_tunnel_ends_when_it_or_its_session_is_closed(
    ssh_hosts: Any, fleet: SshFleet, listener: Callable[..., int]
) -> None:
    session = fleet.session(ssh_hosts.host("n1").host)
    first = session.tunnel(listener(echo))
    with socket.create_connection(("127.0.0.1", first.port), WITHIN_S) as waiting:
        waiting.settimeout(WITHIN_S)
        waiting.sendall(b"x")
        first.close()
        with contextlib.suppress(ConnectionError):
            assert waiting.recv(10) == b""
        with pytest.raises(OSError, match="refused"):
            ask(first.port, b"x")
    second = session.tunnel(listener(echo))
    fleet.close()
    try:
        assert ask(second.port, b"x") == b""
    # The other side may have refused, reset or closed the connection before this side shuts it
    # down.
    except OSError as error:
        assert error.errno in (errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN), (
            error
        )


def test_silent_connections_give_way_to_new_ones(
    ssh_hosts: Any, fleet: SshFleet, listener: Callable[..., int]
) -> None:
    tunnel = fleet.session(ssh_hosts.host("n1").host).tunnel(listener(echo))
    with contextlib.ExitStack() as silent:
        for _ in range(MOST_CONNECTIONS):
            silent.enter_context(socket.create_connection(("127.0.0.1", tunnel.port), WITHIN_S))
        assert [ask(tunnel.port, b"abc") for _ in range(3)] == [b"cba"] * 3


def test_impossible_tunnels_fail_immediately(
    ssh_hosts: Any, fleet: SshFleet, listener: Callable[..., int]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed_port = server.getsockname()[1]
    session = fleet.session(ssh_hosts.host("n1").host)
    with pytest.raises(HostFailed, match="nothing answers"):
        session.tunnel(closed_port)
    closed = fleet.session(ssh_hosts.host("n2", "AllowTcpForwarding no").host)
    with pytest.raises(HostFailed, match="forwards no connections") as caught:
        closed.tunnel(listener(echo))
    assert "AllowTcpForwarding" in str(caught.value.next)
    with socket.create_server(("127.0.0.1", 0)) as server:
        used_port = server.getsockname()[1]
        with pytest.raises(Refused, match="taken"):
            session.tunnel(listener(echo), (used_port,))
        assert session.tunnel(listener(echo), (used_port, 0)).port != used_port
