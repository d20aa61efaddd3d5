"""Compare the addresses that a member states inside TLS with the source address of its connection.

TLS proves who the member is, not that the source address is the member's: it may belong to a relay
or a NAT. A member that lies may state any address through which its connections can come.
"""

from __future__ import annotations

import socket

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import List, Tuple
from tfdeploy.agent.host.network.addresses import own_addresses

MOST_STATED = 64
# run.links asks {"ask": {"seen_as": true}} for its source address, as the peer sees it
SEEN_AS = "seen_as"


def addresses_to_state(channel: socket.socket) -> List[str]:
    """Return this host's addresses, the connection's own address first."""
    try:
        local = [str(peer_filter.address(channel.getsockname()[0]))]
    except OSError:
        local = []
    return list(dict.fromkeys(local + own_addresses()))[:MOST_STATED]


def source_address(channel: socket.socket, stated: object) -> Tuple[str, bool]:
    """Return (the connection's source address, whether the peer's list `stated` has it).

    Raises OSError if the connection has ended.
    """
    source = peer_filter.address(channel.getpeername()[0])
    listed = stated[:MOST_STATED] if isinstance(stated, list) else []
    given = [each for each in listed if isinstance(each, str) and peer_filter.is_address(each)]
    return str(source), source in map(peer_filter.address, given)
