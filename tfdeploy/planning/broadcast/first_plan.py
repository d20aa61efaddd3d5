"""Plans which host sends to which others when a broadcast begins: in a chain, or two binary trees.

In a chain, a piece reaches the last host after as many hops as there are hosts. With k trees and k
children of each node, it reaches the last host after k * log_k(hosts) hops. Each tree carries one
stripe (share) of the pieces. A host is an inner node of one tree only. So in trees, as in a chain,
a host sends each byte only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfdeploy.agent.pieces import PIECE_BYTES
from tfdeploy.planning.broadcast.feeds import (
    CONTROL_MACHINE,
    Feed,
    FeedPlan,
    Member,
    group_by_site,
    make_move,
)

# With at most FEW hosts, trees are no faster than a chain. With more than MANY hosts, a chain is
# too long, because each slow host delays all hosts after it.
FEW, MANY = 4, 16
# A chain is used only if its last host gets the first piece within this share of the total time.
CHAIN_SHARE = 0.1
# A hop takes this many times as long as the transfer of one piece, because the host also verifies
# the piece and writes it to the disk.
HOP_PIECES = 2
# The number of trees. With 3 or 4 trees, the last host would not get its first piece sooner than
# with 2.
TREES = 2


def first_plan(members: Iterable[Member], total_bytes: int) -> FeedPlan:
    """Return the first plan of a broadcast. Hosts are arranged in the order of `members`.

    `total_bytes`: how many bytes a host without any of the data receives.
    """
    members = tuple(members)
    stripes = choose_stripe_count(sum(not member.is_complete for member in members), total_bytes)
    feeds = [feed for stripe in range(stripes) for feed in _stripe_feeds(members, stripe, stripes)]
    members_by_name = {member.name: member for member in members}
    # Some hosts have already waited for data before this plan. A Move records how long a host has
    # waited, so that the time does not count against its new connection.
    moves = tuple(
        make_move(members_by_name[feed.child], feed.stripe, members_by_name.get(feed.parent))
        for feed in feeds
        if members_by_name[feed.child].progress_in(feed.stripe).starved_s
    )
    return FeedPlan(stripes=stripes, feeds=tuple(feeds), moves=moves)


def choose_stripe_count(host_count: int, total_bytes: int) -> int:
    """Return the number of stripes: 1 for a chain, TREES for trees."""
    is_quick = host_count * HOP_PIECES * PIECE_BYTES <= CHAIN_SHARE * total_bytes
    return 1 if host_count <= FEW or (host_count <= MANY and is_quick) else TREES


def _stripe_feeds(members: Sequence[Member], stripe: int, stripe_count: int) -> list[Feed]:
    """Return the connections (feeds) of one stripe, one site after the other.

    The first host of each site receives from a host of a site that is already connected, if
    possible from a host that has not yet reached its number of children.
    """
    feeds: list[Feed] = []
    # Hosts of earlier sites that may send to the next site. The best of these hosts comes last.
    earlier_relays: list[str] = []
    for site in group_by_site(members).values():
        sources = [each.name for each in site if each.is_complete and each.serves]
        relays, leaves = _split_off_senders(
            [each for each in site if not each.is_complete], stripe, stripe_count
        )
        # If a site has fewer sources than there are stripes, each source may send all stripes, as
        # the control machine does. Otherwise each source sends only one stripe.
        if len(sources) < stripe_count:
            earlier_relays, sources = [*earlier_relays, *sources], []
        sources = sources[stripe::stripe_count]
        order = [*sources, *relays, *leaves]
        able = len(sources) + len(relays)
        if order and not sources:
            feeds.append(
                Feed(earlier_relays[-1] if earlier_relays else CONTROL_MACHINE, order[0], stripe)
            )
        heads = max(len(sources), 1)
        for position in range(heads, len(order)):
            if able:
                parent = order[_parent_position(position - heads, able, stripe_count)]
            else:
                parent = (
                    earlier_relays[-1 - position % len(earlier_relays)]
                    if earlier_relays
                    else CONTROL_MACHINE
                )
            feeds.append(Feed(parent, order[position], stripe))
        if able:
            earlier_relays = [
                *earlier_relays,
                *order[:able],
                order[_parent_position(len(order) - heads, able, stripe_count)],
            ]
    return feeds


def _split_off_senders(
    incomplete: Sequence[Member], stripe: int, stripe_count: int
) -> tuple[list[str], list[str]]:
    """Return (the hosts that may send this stripe, all other hosts).

    The other hosts send another stripe, or cannot send at all.
    """
    able = [each.name for each in incomplete if each.serves]
    relays = able[stripe::stripe_count] or able[:1]
    chosen = set(relays)
    return relays, [each.name for each in incomplete if each.name not in chosen]


def _parent_position(number: int, parent_count: int, children_each: int) -> int:
    """Return the position of the parent that child `number` gets.

    There are `parent_count` parents, and each is planned to get `children_each` children. Children
    beyond that number go to the last parent, then to the parent before it, and so on.
    """
    room = parent_count * children_each
    return (
        number // children_each
        if number < room
        else parent_count - 1 - (number - room) % parent_count
    )
