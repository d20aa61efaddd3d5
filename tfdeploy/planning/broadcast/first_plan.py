"""Plan the feeds with which a broadcast begins: a chain, or with many hosts two stripes of binary
trees.

In a chain a piece reaches the last host after as many hops as there are hosts. In k trees of k
children each it takes k * log_k(hosts), and since each host is an inner node of one tree only, its
uplink carries each byte once in both cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfdeploy.planning.broadcast.feeds import (
    HERE,
    PIECE_BYTES,
    Feed,
    FeedPlan,
    Member,
    move,
    sites_of,
)

# up to so few hosts trees gain nothing; with more than so many each straggler of a chain holds up
# too many
FEW, MANY = 4, 16
# of the transfer's time may pass until the last host of a chain has its first piece
CHAIN_SHARE = 0.1
# so many times of a piece on the wire pass per hop: to receive it, to check and write it
HOP_PIECES = 2
TREES = 2  # with 2, 3 or 4 the last host has its first piece after the same time


def first_plan(members: Iterable[Member], total_bytes: int) -> FeedPlan:
    """Return the feeds. `total_bytes`: what the broadcast moves to a host that has nothing of it.
    The first members come first."""
    members = tuple(members)
    stripes = stripes_for(sum(not member.is_complete for member in members), total_bytes)
    feeds = [feed for stripe in range(stripes) for feed in _stripe(members, stripe, stripes)]
    known = {member.name: member for member in members}
    # for others, until all could begin
    waited = (feed for feed in feeds if known[feed.child].intake(feed.stripe).starved_s)
    moves = tuple(move(known[feed.child], feed.stripe, known.get(feed.parent)) for feed in waited)
    return FeedPlan(stripes=stripes, feeds=tuple(feeds), moves=moves)


def stripes_for(hosts: int, total_bytes: int) -> int:
    is_quick = hosts * HOP_PIECES * PIECE_BYTES <= CHAIN_SHARE * total_bytes
    return 1 if hosts <= FEW or (hosts <= MANY and is_quick) else TREES


def _stripe(members: Sequence[Member], stripe: int, stripes: int) -> list[Feed]:
    """Order members site after site: the last relay of each site has room for the first host of the
    next."""
    feeds: list[Feed] = []
    before: list[str] = []  # the relays that the next site may be fed by, the best last
    for site in sites_of(members).values():
        sources = [each.name for each in site if each.is_complete and each.serves]
        relays, leaves = _divided([each for each in site if not each.is_complete], stripe, stripes)
        # too few to share the stripes: they are to each what the control machine is
        if len(sources) < stripes:
            before, sources = [*before, *sources], []
        sources = sources[stripe::stripes]
        order = [*sources, *relays, *leaves]
        able = len(sources) + len(relays)
        if order and not sources:
            feeds.append(Feed(before[-1] if before else HERE, order[0], stripe))
        heads = max(len(sources), 1)
        for position in range(heads, len(order)):
            if able:
                parent = order[_parent(position - heads, able, stripes)]
            else:
                parent = before[-1 - position % len(before)] if before else HERE
            feeds.append(Feed(parent, order[position], stripe))
        if able:
            before = [*before, *order[:able], order[_parent(len(order) - heads, able, stripes)]]
    return feeds


def _divided(
    incomplete: Sequence[Member], stripe: int, stripes: int
) -> tuple[list[str], list[str]]:
    """Return the relays of this stripe, then all others: relays of the other stripes, and hosts
    that no host reaches."""
    able = [each.name for each in incomplete if each.serves]
    relays = able[stripe::stripes] or able[:1]
    chosen = set(relays)
    return relays, [each.name for each in incomplete if each.name not in chosen]


def _parent(number: int, able: int, children: int) -> int:
    """Return the position of the parent of child `number`. Each parent has so many children;
    further children go to the parents from the last one up."""
    room = able * children
    return number // children if number < room else able - 1 - (number - room) % able
