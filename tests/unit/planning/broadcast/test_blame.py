"""Test which members or lines are at fault, given the feeds that are too slow."""

from __future__ import annotations

import pytest

from tfdeploy.planning.broadcast.blame import Blame, blame
from tfdeploy.planning.broadcast.feeds import HERE, Doubt, Member

SITES = {"a": "1", "b": "1", "c": "1", "d": "1", "x": "2", "y": "2", "z": "3"}
CASES = {
    # Feeds that are too slow, as parent>child: (slow members, sites behind a slow line).
    "": ("", ""),
    "a>b": ("b", ""),
    "a>b a>c": ("a", ""),
    "a>b c>b": ("b", ""),
    # Two parents feed b too slowly, so b is slow and a is not to blame for it.
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
    # The children are at different sites, so they say nothing about each other.
    "a>x a>b": ("xb", ""),
}


@pytest.mark.parametrize("feeds", CASES)
def test_who_is_to_blame(feeds: str) -> None:
    members = {name: Member(name=name, site=site) for name, site in SITES.items()}
    doubts = [
        Doubt(child, parent or HERE)
        for parent, _, child in (feed.partition(">") for feed in feeds.split())
    ]
    slow, thin = CASES[feeds]
    assert blame(doubts, members) == Blame(slow=frozenset(slow), thin=frozenset(thin))
