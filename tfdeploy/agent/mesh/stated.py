"""Compare the addresses that a member states inside TLS with the source address of its connection.

TLS proves the member's identity, but not that the source address is its own: the address may belong
to a relay or a NAT. A member that lies may state any address from which its connections can arrive.
"""

from __future__ import annotations

import socket

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import List, Tuple
from tfdeploy.agent.host.network.addresses import own_addresses

MOST_STATED = 64  # limits the addresses in one message
# The key of a question: run.links sends {"ask": {"seen_as": true}} to learn the source address that
# the peer sees.
SEEN_AS = "seen_as"


def addresses_to_state(channel: socket.socket) -> List[str]:
    """Return this host's addresses, the connection's local address first."""
    try:
        local = [str(peer_filter.address(channel.getsockname()[0]))]
    except OSError:
        local = []
    return list(dict.fromkeys(local + own_addresses()))[:MOST_STATED]


def source_address(channel: socket.socket, stated: object) -> Tuple[str, bool]:
    """Return (the connection's source address, True if the peer's list `stated` contains it).

    Raises OSError if the connection has ended.
    """
    source = peer_filter.address(channel.getpeername()[0])
    listed = stated[:MOST_STATED] if isinstance(stated, list) else []
    given = [each for each in listed if isinstance(each, str) and peer_filter.is_address(each)]
    return str(source), source in map(peer_filter.address, given)
