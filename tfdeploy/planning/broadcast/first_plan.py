"""Plans the feeds with which a broadcast begins: a chain, or two stripes of binary trees.

In a chain, a piece reaches the last host after as many hops as there are hosts. In k trees with k
children for each node, it takes k * log_k(hosts) hops. Each host is an inner node of one tree only,
so its uplink carries each byte once in both cases.
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

# Trees gain nothing for up to FEW hosts. A chain of more than MANY hosts is too long, because each
# slow host delays all hosts after it.
FEW, MANY = 4, 16
# The last host of a chain must have its first piece within this share of the transfer's time.
CHAIN_SHARE = 0.1
# A hop takes this many times the transfer time of a piece: to receive it, and to check and write it.
HOP_PIECES = 2
TREES = 2  # number of trees; with 2, 3 or 4 the first piece reaches the last host equally fast


def first_plan(members: Iterable[Member], total_bytes: int) -> FeedPlan:
    """Return the feeds, in the order of the members.

    `total_bytes`: the bytes that the broadcast moves to a host that has none of them yet.
    """
    members = tuple(members)
    stripes = stripes_for(sum(not member.is_complete for member in members), total_bytes)
    feeds = [feed for stripe in range(stripes) for feed in _stripe(members, stripe, stripes)]
    known = {member.name: member for member in members}
    # These children waited before the broadcast began. The move records this time, so that it does
    # not count as starvation.
    waited = (feed for feed in feeds if known[feed.child].intake(feed.stripe).starved_s)
    moves = tuple(move(known[feed.child], feed.stripe, known.get(feed.parent)) for feed in waited)
    return FeedPlan(stripes=stripes, feeds=tuple(feeds), moves=moves)


def stripes_for(hosts: int, total_bytes: int) -> int:
    """Return the number of stripes: 1 for a chain, TREES for trees."""
    is_quick = hosts * HOP_PIECES * PIECE_BYTES <= CHAIN_SHARE * total_bytes
    return 1 if hosts <= FEW or (hosts <= MANY and is_quick) else TREES


def _stripe(members: Sequence[Member], stripe: int, stripes: int) -> list[Feed]:
    """Return the feeds of one stripe, with the members ordered site after site.

    The last relay of each site has room for the first host of the next site.
    """
    feeds: list[Feed] = []
    before: list[str] = []  # the relays that may feed the next site, the best one last
    for site in sites_of(members).values():
        sources = [each.name for each in site if each.is_complete and each.serves]
        relays, leaves = _divided([each for each in site if not each.is_complete], stripe, stripes)
        # Too few sources to divide among the stripes: they feed every stripe, as the control
        # machine does.
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
    """Return (the relays of this stripe, all others).

    The others are relays of the other stripes, and hosts that do not serve.
    """
    able = [each.name for each in incomplete if each.serves]
    relays = able[stripe::stripes] or able[:1]
    chosen = set(relays)
    return relays, [each.name for each in incomplete if each.name not in chosen]


def _parent(number: int, able: int, children: int) -> int:
    """Return the position of the parent of child `number`.

    Each parent has `children` children. Further children go to the parents from the last one up.
    """
    room = able * children
    return number // children if number < room else able - 1 - (number - room) % able
