"""Compare two things: the addresses that a member states as its own inside TLS, and the source
address of its connection.

TLS proves which member connects. TLS does not prove that the source address belongs to this member:
the address may belong to a relay or a NAT. A member can lie about its addresses. But a false
address passes the comparison only if the member's connections really come from it.
"""

from __future__ import annotations

import socket

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import List, Tuple
from tfdeploy.agent.host.network.addresses import own_addresses

MOST_STATED = 64  # limits how many addresses a message may state
# The key of a request to a peer. run.links sends {"ask": {"seen_as": true}}, and the peer answers
# which source address this host's connection has.
SEEN_AS = "seen_as"


def list_own_addresses(channel: socket.socket) -> List[str]:
    """Return this host's addresses. The first one is the local address of the connection."""
    try:
        local = [str(peer_filter.parse_address(channel.getsockname()[0]))]
    except OSError:
        local = []
    return list(dict.fromkeys(local + own_addresses()))[:MOST_STATED]


def check_source_address(channel: socket.socket, claimed_addresses: object) -> Tuple[str, bool]:
    """Return (source address of the connection, True if the list `claimed_addresses` from the peer
    contains this address).

    Raises OSError if the connection has ended.
    """
    source = peer_filter.parse_address(channel.getpeername()[0])
    listed = claimed_addresses[:MOST_STATED] if isinstance(claimed_addresses, list) else []
    valid = [each for each in listed if isinstance(each, str) and peer_filter.is_address(each)]
    return str(source), source in map(peer_filter.parse_address, valid)
