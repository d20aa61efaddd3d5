"""Test that a new run can use a port at once after another run has released it, although
connections of the earlier run are still in TIME_WAIT.
"""

from __future__ import annotations

import socket

from tfdeploy.agent.host.network import free_ports, sockets


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_ports_in_time_wait_come_last() -> None:
    listener = sockets.bind_exclusively(port := free_port())
    listener.listen(5)
    client = socket.create_connection(("127.0.0.1", port))
    accepted, _ = listener.accept()
    accepted.close()
    client.close()
    listener.close()
    free = free_ports.scan_ports(port, min(port + 20, 65535), {})[0]
    others = [each for each in free if each != port]
    assert free == [*others, port] and others == sorted(others)


def test_the_port_of_a_mesh_that_has_closed_is_free_again() -> None:
    port = free_port()
    listener = sockets.bind_exclusively(port)
    listener.listen(5)
    client = socket.create_connection(("127.0.0.1", port))
    accepted, _ = listener.accept()
    # The side that closes the connection first keeps its port in TIME_WAIT.
    accepted.close()
    client.close()
    assert not free_ports.is_free(port)
    listener.close()
    assert free_ports.is_free(port)
    sockets.hold_port(port).close()


def test_the_port_that_a_live_run_binds_again_after_a_restart_is_taken() -> None:
    """Another run got the MASTER_PORT of a rank 0 that had closed its listening socket."""
    port = free_port()
    assert free_ports.scan_ports(port, port, {}) == ([port], {})
    owner = "worker:0 of run r of job j"
    assert free_ports.scan_ports(port, port, {port: owner}) == ([], {str(port): owner})
