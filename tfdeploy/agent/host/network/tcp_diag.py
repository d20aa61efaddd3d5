"""Read from the kernel (sock_diag) how many bytes each TCP connection of this host has moved, and
on which ports sockets listen.

Bytes that were sent count only after the other side has acknowledged them. So keepalives, and data
sent into a dead network, do not count. No privileges are needed. If the kernel has no sock_diag,
the functions that read sockets return None.
"""

from __future__ import annotations

import socket
import struct

from tfdeploy.agent.annotations import Collection, Dict, Optional
from tfdeploy.agent.host.network import netlink
from tfdeploy.agent.record import NamedTuple

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_ESTABLISHED, _CLOSE_WAIT, _LISTEN = 1, 8, 10
# Offsets of fields in struct inet_diag_msg, and the size of this struct.
_STATE_AT, _PORT_AT, _SOURCE_AT, _INODE_AT, _MESSAGE_BYTES = 1, 4, 8, 68, 72
# Attributes of a message: INET_DIAG_INFO (a struct tcp_info) and INET_DIAG_SKV6ONLY.
_INFO, _ONLY_IPV6 = 2, 11
# The offset of tcpi_bytes_acked in struct tcp_info. tcpi_bytes_received follows it (Linux 4.1).
_BYTES_AT = 120


class Traffic(NamedTuple):
    # inode of a connection -> how many bytes it has moved: the received bytes, and the sent bytes
    # that the other side has acknowledged
    bytes_by_inode: Dict[int, int]
    port_by_inode: Dict[int, int]  # inode of a listening socket -> its port
    # inode -> address, for sockets that listen on some of the host's addresses but not on all.
    # Sockets on loopback are left out.
    address_by_inode: Dict[int, str] = {}


def read_traffic() -> Optional[Traffic]:
    """Return the connections and listening TCP sockets of this network namespace. Return None if
    the kernel has no sock_diag."""
    return _read_sockets((_ESTABLISHED, _CLOSE_WAIT, _LISTEN), 1 << (_INFO - 1))


def read_listeners() -> Optional[Traffic]:
    """Return the TCP sockets that listen. Return None if the kernel has no sock_diag. /proc/net/tcp
    lists these sockets too, but reading that file takes milliseconds, because the kernel walks
    through its whole table of connections."""
    return _read_sockets((_LISTEN,), 0)


def find_partial_listeners(
    ports: Collection[int], except_inodes: Collection[int]
) -> Dict[int, str]:
    """Return port -> address, for sockets that listen on only some of the host's addresses. The
    filter of guarded_ports.py does not apply to such a socket, so everybody can connect to it.
    Sockets in `except_inodes` are ignored. The result is empty if the kernel has no sock_diag."""
    traffic = read_listeners() or Traffic({}, {})
    return {
        traffic.port_by_inode[inode]: address
        for inode, address in traffic.address_by_inode.items()
        if inode not in except_inodes and traffic.port_by_inode[inode] in ports
    }


def _read_sockets(states: Collection[int], extensions: int) -> Optional[Traffic]:
    traffic = Traffic({}, {}, {})
    mask = sum(1 << state for state in states)
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            question = struct.pack("=BBBBL48x", family, socket.IPPROTO_TCP, extensions, 0, mask)
            for message in netlink.request(_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, question):
                _add_socket(message, traffic)
    except OSError:
        return None
    return traffic


def _add_socket(message: bytes, traffic: Traffic) -> None:
    inode = struct.unpack_from("=L", message, _INODE_AT)[0]
    values = netlink.parse_attributes(message, _MESSAGE_BYTES)
    if message[_STATE_AT] != _LISTEN:
        info = values.get(_INFO, b"")
        if len(info) >= _BYTES_AT + 16:
            traffic.bytes_by_inode[inode] = sum(struct.unpack_from("=QQ", info, _BYTES_AT))
        return
    traffic.port_by_inode[inode] = struct.unpack_from("!H", message, _PORT_AT)[0]
    address = _partial_address(message, values.get(_ONLY_IPV6, b"\0"))
    if address:
        traffic.address_by_inode[inode] = address


def _partial_address(message: bytes, only_ipv6: bytes) -> str:
    """Return "" if the socket listens on all addresses of IPv4 and IPv6, or only on a loopback
    address. Otherwise return the address on which it listens."""
    family, length = message[0], 4 if message[0] == socket.AF_INET else 16
    address = socket.inet_ntop(family, message[_SOURCE_AT : _SOURCE_AT + length])
    if address.startswith("127.") or address == "::1":
        return ""
    if address == "::":
        return ":: without IPv4" if any(only_ipv6) else ""
    return address
