"""Draw the tree of a broadcast (which host sends to which) in a few lines of text: "here > n1 >
n2", with a branch for each further child of a host. The functions are pure.

Hosts that do not fit are only counted: "(14 hosts)". Hosts in `important_hosts` are shown as long
as there is room for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby

from tfdeploy.text.names import group_by_key
from tfdeploy.ui.amounts import format_count
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import cell_width

ARROW = " > "
# The maximum width of a host's name, in columns.
NAME_CELLS = 24


def draw_feed_tree(
    parent_child_pairs: Iterable[tuple[str, str]],
    *,
    width: int,
    max_lines: int,
    important_hosts: Collection[str] = (),
) -> list[str]:
    """Return at most `max_lines` lines of at most `width` columns. `parent_child_pairs`: (parent,
    child) for each pair of hosts in which the parent sends data to the child; the parent "" is this
    machine. All pairs belong to one stripe, a share of the data that is sent along a tree of its
    own."""
    tree = _FeedTree(parent_child_pairs)
    levels = max(tree.depth.values(), default=0) + 1
    lines: list[str] = []
    # The first pass shows all of `important_hosts`. If these do not fit, the second pass may leave
    # out some of them.
    for shown, least in ((important_hosts, 1), ((), 0)):
        above = tree.with_ancestors(shown)
        for depth in range(levels, least - 1, -1):
            drawn = above | {host for host, host_depth in tree.depth.items() if host_depth < depth}
            lines = [
                line
                for top in tree.tops
                for line in tree.lines(top, drawn, frozenset(shown), width)
            ]
            if len(lines) <= max_lines:
                return lines
    return lines[:max_lines]


class _FeedTree:
    """The tree along which one stripe of the data is sent from host to host. `depth`: {host: its
    distance from the root}. `size`: {host: how many hosts its subtree has, including the host
    itself}."""

    def __init__(self, feeds: Iterable[tuple[str, str]]) -> None:
        feeds = list(feeds)
        self.children = group_by_key(feeds)
        self.parents = {child: parent for parent, child in feeds}
        self.tops = [parent for parent in self.children if parent not in self.parents]
        self.depth = dict.fromkeys(self.tops, 0)
        order = list(self.tops)
        # The loop appends to the list that it reads, so each host comes after its parent.
        for host in order:
            below = self.children.get(host, ())
            self.depth.update(dict.fromkeys(below, self.depth[host] + 1))
            order += below
        self.size: dict[str, int] = {}
        for host in reversed(order):
            self.size[host] = 1 + sum(self.size[child] for child in self.children.get(host, ()))

    def with_ancestors(self, hosts: Iterable[str]) -> set[str]:
        names: set[str] = set()
        for host in hosts:
            while host not in names:
                names.add(host)
                host = self.parents.get(host, host)
        return names

    def lines(
        self, top: str, drawn: Collection[str], important_hosts: Collection[str], width: int
    ) -> list[str]:
        """Return the lines of the subtree of `top`. Only hosts in `drawn` are shown; other hosts
        are counted. The first line is a chain of hosts: `top`, its only shown child, the only shown
        child of that host, and so on. The chain ends at the first host that has no shown child, or
        several. Then come the lines of each shown child of this last host."""
        row, hidden = [top], 0
        while True:
            below = self.children.get(row[-1], ())
            shown = [child for child in below if child in drawn]
            hidden += sum(self.size[child] for child in below if child not in drawn)
            if len(shown) != 1:
                break
            row += shown
        lines = [_chain_line(row, [_host_count(hidden)] if hidden else [], width, important_hosts)]
        for number, child in enumerate(shown, 1):
            first, *others = self.lines(child, drawn, important_hosts, width - 3)
            lines.append(("|- " if number < len(shown) else "`- ") + first)
            lines += [("|  " if number < len(shown) else "   ") + line for line in others]
        return lines


def _chain_line(
    hosts: list[str], ending: list[str], width: int, important_hosts: Collection[str]
) -> str:
    """Return a chain of hosts as one line of at most `width` columns. If the chain is too long,
    hosts in the middle of the chain are only counted. `ending`: texts after the last host."""
    shown_names = [clean(name, NAME_CELLS) if name else "here" for name in hosts]
    last = len(shown_names) - 1
    if last < 2 or cell_width(ARROW.join(shown_names + ending)) <= width:
        return ARROW.join(shown_names + ending)[:width]
    keep = {
        number
        for number, name in enumerate(hosts)
        if name in important_hosts or number in (0, last)
    }
    for number in (1, 2, 3, *range(last - 1, 3, -1)):
        if cell_width(ARROW.join(_count_left_out(shown_names, keep | {number}) + ending)) > width:
            break
        keep.add(number)
    return ARROW.join(_count_left_out(shown_names, keep) + ending)[:width]


def _count_left_out(shown_names: list[str], keep: Collection[int]) -> list[str]:
    lines: list[str] = []
    for is_kept, run in groupby(enumerate(shown_names), key=lambda each: each[0] in keep):
        names = [name for _, name in run]
        lines += names if is_kept else [_host_count(len(names))]
    return lines


def _host_count(host_count: int) -> str:
    return f"({format_count(host_count, 'host')})"
