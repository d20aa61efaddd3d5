"""Describe the broadcasts in progress: small trees that show which host sends to which, the parents
of a host, and which hosts are slow or stuck."""

from __future__ import annotations

from collections.abc import Iterator

from tfdeploy.model.events import BroadcastFields
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.ui.feed_tree import NAME_CELLS, draw_feed_tree
from tfdeploy.ui.sanitise import clean


class ActiveBroadcasts:
    """Which host sends to which in all broadcasts in progress, at one moment."""

    def __init__(self, progress: RunProgress) -> None:
        moving = {
            each.what for host in progress.hosts.values() for each in host.active_transfers_to_host
        }
        self._broadcasts = [
            fields for what, fields in progress.broadcasts.items() if what in moving
        ]
        self._parents: dict[str, dict[str, None]] = {}
        for fields in self._broadcasts:
            for parent, child, _ in fields["feeds"]:
                self._parents.setdefault(child, {})[parent] = None
        self._order = {host: number for number, host in enumerate(self._parents)}

    def tree_lines(self, width: int, max_lines: int) -> list[str]:
        """Return the trees of all broadcasts in progress, in at most `max_lines` lines of at most
        `width` columns."""
        each = max(1, max_lines // max(1, sum(fields["stripes"] for fields in self._broadcasts)))
        return [line for fields in self._broadcasts for line in _tree_lines(fields, width, each)][
            :max_lines
        ]

    def parents(self, host: str) -> Iterator[str]:
        for parent in self._parents.get(host, ()):
            yield clean(parent, NAME_CELLS) if parent else "here"

    def sort_key(self, host: str) -> int:
        """Return a number that sorts hosts in the order in which the broadcasts list them."""
        return self._order.get(host, len(self._order))

    def troubles(self, host: str) -> list[str]:
        """Return what is wrong with the transfer to the host: "stuck", "slow", both, or nothing."""
        return [
            word
            for word in ("stuck", "slow")
            if any(host in fields[word] for fields in self._broadcasts)
        ]


def _tree_lines(fields: BroadcastFields, width: int, max_lines: int) -> Iterator[str]:
    """Return the lines of a broadcast's trees, at most `max_lines` lines for each tree. There is
    one tree for each stripe (a share of the data). If there are several stripes, the number of the
    stripe stands before the first line of its tree."""
    named = {*fields["slow"], *fields["stuck"]}
    for stripe in range(fields["stripes"]):
        label = f"{stripe + 1}/{fields['stripes']} " if fields["stripes"] > 1 else ""
        feeds = [(parent, child) for parent, child, number in fields["feeds"] if number == stripe]
        for line in draw_feed_tree(
            feeds, width=width - len(label), max_lines=max_lines, important_hosts=named
        ):
            yield label + line
            label = " " * len(label)
