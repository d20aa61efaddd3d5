"""Which addresses a member of the run states as its own, inside TLS, and whether its connection comes from one of them.

TLS proves who speaks, not whose the address is: a relay, NAT or a redirected route has one of its own. A member that lies may
state any address that it can be reached through.
"""

from __future__ import annotations

import socket

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import List, Tuple
from tfdeploy.agent.host.addresses import own_addresses

MOST_STATED = 64
SEEN_AS = "seen_as"  # the question that run.links asks: {"ask": {"seen_as": true}}


def statement(channel: socket.socket) -> List[str]:
    """This host's addresses, that of the connection first."""
    try:
        here = [plain(str(channel.getsockname()[0]))]
    except OSError:
        here = []
    return list(dict.fromkeys(here + own_addresses()))[:MOST_STATED]


def seen(channel: socket.socket, said: object) -> Tuple[str, bool]:
    """(the address that the connection comes from, whether `said` has it). Raises OSError: it has ended."""
    address = plain(str(channel.getpeername()[0]))
    stated = said[:MOST_STATED] if isinstance(said, list) else []
    return address, any(isinstance(each, str) and _same(each, address) for each in stated)


def plain(address: str) -> str:
    """Without the zone; IPv4 not as mapped into IPv6."""
    bare = address.partition("%")[0]
    return bare[len("::ffff:") :] if bare.lower().startswith("::ffff:") and "." in bare else bare


def _same(one: str, other: str) -> bool:
    try:
        return peer_filter.prefix(one) == peer_filter.prefix(other)
    except ValueError:
        return False
