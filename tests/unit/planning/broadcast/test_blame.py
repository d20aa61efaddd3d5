"""Test which hosts, or which network lines between sites, are blamed if data arrives too slowly in
a broadcast.
"""

from __future__ import annotations

import pytest

from tfdeploy.planning.broadcast.blame import Blame, find_slow_hosts_and_sites
from tfdeploy.planning.broadcast.feeds import CONTROL_MACHINE, Member, SuspectFeed

SITES = {"a": "1", "b": "1", "c": "1", "d": "1", "x": "2", "y": "2", "z": "3"}
CASES = {
    # {slow transfers, as sender>receiver: (hosts to blame, sites whose network line is to blame)}.
    # The control machine is the sender without a name.
    "": ("", ""),
    "a>b": ("b", ""),
    "a>b a>c": ("a", ""),
    "a>b c>b": ("b", ""),
    # Both transfers to b are slow, so b is to blame for them, and a is not.
    "a>b d>b a>c": ("bc", ""),
    "a>b d>b a>c d>c": ("bc", ""),
    "a>b b>c": ("bc", ""),
    ">a": ("a", ""),
    ">a >b": ("", ""),
    ">a d>a": ("a", ""),
    "a>x": ("x", ""),
    "a>x a>y": ("", "2"),
    "a>x b>y": ("", "2"),
    "a>x y>x a>y": ("xy", ""),
    "a>x a>z": ("xz", ""),
    # The transfers from a to x and to b are slow. x and b are at different sites, so this does not
    # show that a is slow.
    "a>x a>b": ("xb", ""),
}


@pytest.mark.parametrize("feeds", CASES)
def test_blamed_hosts_and_lines(feeds: str) -> None:
    members = {name: Member(name=name, site=site) for name, site in SITES.items()}
    suspect_feeds = [
        SuspectFeed(child, parent or CONTROL_MACHINE)
        for parent, _, child in (feed.partition(">") for feed in feeds.split())
    ]
    hosts, sites = CASES[feeds]
    assert find_slow_hosts_and_sites(suspect_feeds, members) == Blame(
        frozenset(hosts), frozenset(sites)
    )
