"""Test that files which several hosts lack are sent to these hosts together, from a host that has
the files.
"""

from __future__ import annotations

from tfdeploy.planning.broadcast.streams import Stream, streams

SIZES = [0, 10, 10, 10, 0, 10]
PARTS = {"n1": [1, 2], "n2": [3, 4, 5]}


def test_each_part_goes_to_its_host_alone_from_here() -> None:
    assert streams(PARTS, PARTS, SIZES, {}) == [
        Stream(("n1",), None, [1, 2]),
        Stream(("n2",), None, [3, 5]),
    ]


def test_what_a_host_has_already_is_lent_by_it() -> None:
    moved = streams(PARTS, {"n1": [2], "n2": [3, 5]}, SIZES, {"n3": [1, 2, 5]})
    assert moved == [
        Stream(("n1",), "n3", [2]),
        Stream(("n2",), None, [3]),
        Stream(("n2",), "n3", [5]),
    ]


def test_hosts_that_lend_share_the_work_and_the_origin_lends_too() -> None:
    moved = streams({"n1": [1, 2, 3, 5]}, {"n1": [1, 2, 3, 5]}, SIZES, {"n3": [1, 2]}, origin="n9")
    assert [(stream.lender, stream.rows) for stream in moved] == [("n3", [1]), ("n9", [2, 3, 5])]


def test_hosts_that_want_the_same_get_it_together_and_those_that_have_it_take_no_part() -> None:
    wanting = {"n1": [1, 2], "n2": [3], "ps": [1, 2, 3]}
    moved = streams(wanting, {"n1": [], "n2": [3], "ps": [2, 3]}, SIZES, {"n1": [1, 2]})
    assert moved == [Stream(("ps",), "n1", [2]), Stream(("n2", "ps"), None, [3])]
