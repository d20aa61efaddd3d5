"""Makes the kernel steer the connections to one port: peers to the task's socket, all others to the
one that holds it.

All sockets that listen on the port with SO_REUSEPORT are a group, in the order of their listen();
the program of peer_filter.py returns a place in it. A place that is empty means any of the group.
Nothing here is on the path of data.
"""

from __future__ import annotations

import array
import socket
import struct

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import Iterable
from tfdeploy.agent.host.network import sockets

_SO_ATTACH_REUSEPORT_CBPF = 51
_LENGTHS = (4096, 3000, 2000, 1250, 1000, 600, 300)
_CONNECTIONS = 8  # of a kernel that takes no notice of the filter, half of them reach each socket
_WITHIN_S = 1.0


def attach(member: socket.socket, instructions: "Iterable[peer_filter.Instruction]") -> None:
    """The program for the whole group of `member`, in place of the one before. Raises OSError:
    ENOMEM: it is too long."""
    packed = peer_filter.pack(instructions)
    memory = array.array("B", packed)
    address, length = memory.buffer_info()
    member.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, struct.pack("HP", length // 8, address)
    )


def hindrance() -> str:
    """Why this kernel does not steer connections, in words; "": it does, as was just tried on
    loopback."""
    try:
        with sockets.hold(0) as holder:
            port = holder.getsockname()[1]
            attach(holder, peer_filter.program((), 1, 0))
            holder.listen(8)
            with sockets.hold(port, may_be_bound=True) as server:
                server.listen(8)
                if not _reaches(port, server, holder):
                    return "its kernel takes a filter for a port and does not use it"
    except OSError as error:
        return "its kernel takes no filter for a port (%s)" % (error.strerror or error)
    return ""


def _reaches(port: int, wanted: socket.socket, other: socket.socket) -> bool:
    """Whether connections from this host itself reach `wanted` alone."""
    for _ in range(_CONNECTIONS):
        with socket.create_connection(("127.0.0.1", port), timeout=_WITHIN_S):
            wanted.settimeout(_WITHIN_S)
            other.setblocking(False)
            try:
                wanted.accept()[0].close()
            except OSError:
                return False
    return True


def most_instructions() -> int:
    """How long a filter this kernel takes, rounded down; 0: it takes none (net.core.optmem_max)."""
    for length in _LENGTHS:
        try:
            with sockets.hold(0) as holder:
                attach(holder, [(0x06, 0, 0, 0)] * length)
            return length
        except OSError:
            continue
    return 0
