"""Compare the source address of a member's connection with the addresses that this member states as
its own inside TLS.

TLS proves which member connects. It does not prove that the source address belongs to this member,
because the address may be that of a relay or a NAT. A member can state an address that is not its
own. But this address passes the comparison only if the member's connections come from it.
"""

from __future__ import annotations

import socket

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import List, Tuple
from tfdeploy.agent.host.network.addresses import own_addresses

MOST_STATED = 64  # further addresses in a message are ignored
# A key of questions to a peer. run.links sends {"ask": {"seen_as": true}}, and the peer answers
# from which source address this connection comes.
SEEN_AS = "seen_as"


def list_own_addresses(channel: socket.socket) -> List[str]:
    """Return this host's addresses. The first one is the local address of the connection."""
    try:
        local = [str(peer_filter.parse_address(channel.getsockname()[0]))]
    except OSError:
        local = []
    return list(dict.fromkeys(local + own_addresses()))[:MOST_STATED]


def check_source_address(channel: socket.socket, claimed_addresses: object) -> Tuple[str, bool]:
    """Return (source address of the connection, whether the peer claims this address).
    `claimed_addresses`: the list that the peer has sent. Raises OSError if the connection has
    ended."""
    source = peer_filter.parse_address(channel.getpeername()[0])
    listed = claimed_addresses[:MOST_STATED] if isinstance(claimed_addresses, list) else []
    valid = [each for each in listed if isinstance(each, str) and peer_filter.is_address(each)]
    return str(source), source in map(peer_filter.parse_address, valid)
