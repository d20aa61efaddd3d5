"""Ask the kernel over netlink for a list, for example of addresses or sockets."""

from __future__ import annotations

import socket
import struct

from tfdeploy.agent.annotations import Dict, Iterator

_REQUEST_A_LIST = 0x301
_ERROR, _DONE = 2, 3
_HEAD = struct.Struct("=LHHLL")
_TIMEOUT_S = 2.0


def request(protocol: int, kind: int, question: bytes) -> Iterator[bytes]:
    """Send a request to the kernel, and yield the body of each message of the answer. Raises
    OSError, also if the kernel refuses the request."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as link:
        link.settimeout(_TIMEOUT_S)
        link.send(_HEAD.pack(_HEAD.size + len(question), kind, _REQUEST_A_LIST, 1, 0) + question)
        while True:
            packet, at = link.recv(1 << 17), 0
            while at + _HEAD.size <= len(packet):
                length, kind, _, _, _ = _HEAD.unpack_from(packet, at)
                if kind == _DONE:
                    return
                if kind == _ERROR or length < _HEAD.size:
                    raise OSError("the kernel refuses an answer over netlink")
                yield packet[at + _HEAD.size : at + length]
                at += (length + 3) & ~3


def parse_attributes(body: bytes, offset: int) -> Dict[int, bytes]:
    """Return kind -> content of the netlink attributes that begin at `offset` in the message."""
    values_by_kind = {}
    while offset + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, offset)
        if length < 4:
            break
        values_by_kind[kind] = body[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return values_by_kind
