"""Test connections that tfdeploy opens before it needs them. Their number is limited, and the next
login to the host uses them.

Only a host with an IP address and without a jump host gets such an early connection.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tfdeploy.model.inventory import Host
from tfdeploy.transport.ssh import early
from tfdeploy.transport.ssh.connect_timeout import time_limit
from tfdeploy.transport.ssh.target import resolve
from tfdeploy.transport.ssh.tcp import dial


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        server.settimeout(5)
        yield server
    early.close_unused()


def host_at(port: int, **fields: str) -> Host:
    return Host(**{"name": "n1", "address": "127.0.0.1", "port": port, "user": "ml", **fields})  # type: ignore[arg-type]


def test_dial_uses_connection_opened_early(listener: socket.socket) -> None:
    host = host_at(listener.getsockname()[1])
    early.start_connections((host, host))
    accepted, _ = listener.accept()
    with accepted, time_limit(5.0) as wait:
        link = dial(resolve(host), wait)
        accepted.sendall(b"SSH-2.0-here\r\n")
        link.wait_for_greeting(5.0)
        assert link.recv(3) + link.recv(100) == b"SSH-2.0-here\r\n"
        link.close()
    listener.settimeout(0.2)
    with pytest.raises(TimeoutError):
        # No second connection was opened.
        listener.accept()


def test_refused_early_connection_is_error_of_dial(listener: socket.socket) -> None:
    host = host_at(listener.getsockname()[1])
    listener.close()
    early.start_connections((host,))
    with time_limit(5.0) as wait, pytest.raises(ConnectionRefusedError):
        dial(resolve(host), wait)


def test_no_early_connection_to_names_jumps_and_invalid_addresses(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    early.start_connections(
        (
            host_at(port, address="localhost"),
            host_at(port, jump="127.0.0.1"),
            host_at(port, address="-oProxyCommand=x"),
        )
    )
    assert (
        early.take_early_connection("localhost", port)
        is early.take_early_connection("127.0.0.1", port)
        is None
    )


def test_unused_early_connection_is_closed(listener: socket.socket) -> None:
    early.start_connections((host_at(listener.getsockname()[1]),))
    accepted, _ = listener.accept()
    with accepted:
        accepted.settimeout(5)
        early.close_unused()
        assert accepted.recv(1) == b""


def test_early_connections_leave_descriptors_for_dialling(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early.descriptors, "count_free", lambda: 2 * early.descriptors.PER_DIAL)
    listening_host, closed_host = host_at(listener.getsockname()[1]), host_at(1)
    early.start_connections((listening_host, closed_host))
    assert early.take_early_connection("127.0.0.1", 1) is None
