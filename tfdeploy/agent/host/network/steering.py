"""Make the kernel distribute the connections of one port: connections of the run's hosts go to the
socket of the task, all others go to the agent's socket that holds the port.

All sockets that listen on a port with SO_REUSEPORT form a group. They are numbered in the order in
which they called listen(). For each connection, the program that peer_filter.py builds returns the
index of a socket in the group. If no socket has this index, the kernel takes any socket of the
group. No data passes through this process.
"""

from __future__ import annotations

import array
import socket
import struct

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import Iterable
from tfdeploy.agent.host.network import sockets

_SO_ATTACH_REUSEPORT_CBPF = 51
# The lengths of a filter (numbers of instructions) that `most_instructions` tries.
_LENGTHS = (4096, 3000, 2000, 1250, 1000, 600, 300)
# The number of test connections. If the kernel ignores the filter, each connection reaches one of
# two sockets by chance. So it is very unlikely that all connections reach the same socket.
_CONNECTIONS = 8
_TIMEOUT_S = 1.0  # limits the time of each test connection


def attach_reuseport_filter(
    listener: socket.socket, instructions: "Iterable[peer_filter.Instruction]"
) -> None:
    """Attach a BPF program to the socket `listener` and to all other sockets that listen on the
    same port with SO_REUSEPORT. The program replaces the program that was attached before. Raises
    OSError (ENOMEM if the program is too long)."""
    packed = peer_filter.pack(instructions)
    memory = array.array("B", packed)
    address, length = memory.buffer_info()
    listener.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, struct.pack("HP", length // 8, address)
    )


def find_filter_problem() -> str:
    """Test on loopback whether this kernel distributes connections by a filter. Return "" if it
    does, and otherwise what is wrong."""
    try:
        with sockets.hold_port(0) as holder:
            port = holder.getsockname()[1]
            attach_reuseport_filter(holder, peer_filter.build_filter((), 1, 0))
            holder.listen(8)
            with sockets.hold_port(port, may_be_bound=True) as server:
                server.listen(8)
                if not _gets_all_connections(port, server, holder):
                    return "its kernel accepts a filter for a port but ignores it"
    except OSError as error:
        return "its kernel accepts no filter for a port (%s)" % (error.strerror or error)
    return ""


def _gets_all_connections(
    port: int, expected_socket: socket.socket, other_socket: socket.socket
) -> bool:
    """Return True if all test connections from this host reach the socket `expected_socket`."""
    for _ in range(_CONNECTIONS):
        with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S):
            expected_socket.settimeout(_TIMEOUT_S)
            other_socket.setblocking(False)
            try:
                expected_socket.accept()[0].close()
            except OSError:
                return False
    return True


def most_instructions() -> int:
    """Return the greatest length in _LENGTHS for which this kernel accepts a filter. Return 0 if it
    accepts none of these lengths. The kernel's limit depends on net.core.optmem_max."""
    for length in _LENGTHS:
        try:
            with sockets.hold_port(0) as holder:
                attach_reuseport_filter(holder, [(0x06, 0, 0, 0)] * length)
            return length
        except OSError:
            continue
    return 0
