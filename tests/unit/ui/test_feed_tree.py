"""Test how the tree of a broadcast (which host sends to which) is printed as lines.

If the tree does not fit, only the important hosts are shown, and the others are counted.
"""

from __future__ import annotations

import pytest

from tfdeploy.planning.broadcast.feeds import Member
from tfdeploy.planning.broadcast.first_plan import first_plan
from tfdeploy.ui.feed_tree import draw_feed_tree

MIB = 1 << 20


def feeds(hosts: int, stripe: int = 0) -> list[tuple[str, str]]:
    plan = first_plan(
        [Member(name=f"n{number}", wanted_bytes=1 << 30) for number in range(1, hosts + 1)], 1 << 30
    )
    return [(feed.parent, feed.child) for feed in plan.feeds if feed.stripe == stripe]


FEW = [("", "a"), ("a", "b"), ("b", "c"), ("b", "d"), ("d", "e"), ("", "f")]


def test_chain_is_one_line() -> None:
    assert draw_feed_tree(feeds(4), width=80, max_lines=4) == ["here > n1 > n2 > n3 > n4"]


def test_branches_and_several_sources() -> None:
    assert draw_feed_tree(FEW, width=80, max_lines=9) == [
        "here",
        "|- a > b",
        "|  |- c",
        "|  `- d > e",
        "`- f",
    ]
    assert draw_feed_tree([("x", "y"), ("", "a")], width=80, max_lines=9) == ["x > y", "here > a"]


def test_hosts_in_middle_of_long_chain_are_counted() -> None:
    (line,) = draw_feed_tree(feeds(16), width=60, max_lines=4, important_hosts=["n9"])
    assert line == "here > n1 > n2 > n3 > (5 hosts) > n9 > (5 hosts) > n15 > n16"


@pytest.mark.parametrize("hosts", [1, 2, 16, 17, 33, 200, 3000])
@pytest.mark.parametrize(("width", "most"), [(20, 1), (40, 3), (80, 6), (200, 20)])
def test_tree_always_fits(hosts: int, width: int, most: int) -> None:
    for named in ((), (f"n{hosts}",), tuple(f"n{number}" for number in range(1, hosts + 1, 3))):
        lines = draw_feed_tree(feeds(hosts), width=width, max_lines=most, important_hosts=named)
        assert 1 <= len(lines) <= most
        assert max(map(len, lines)) <= width


def test_every_host_is_named_or_counted() -> None:
    for most in (3, 5, 8, 100):
        lines = draw_feed_tree(feeds(100), width=500, max_lines=most)
        words = " ".join(lines).replace("|- ", "").replace("`- ", "").replace("|", "").split(" > ")
        names = [word for line in words for word in line.split() if word.startswith("n")]
        counted = [int(part.split()[0]) for line in lines for part in line.split("(")[1:]]
        assert len(names) + sum(counted) == 100, lines


def test_name_is_sanitised() -> None:
    assert "\x1b" not in draw_feed_tree([("", "a\x1b[2J")], width=80, max_lines=4)[0]
