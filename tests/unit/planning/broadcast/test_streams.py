"""Test that, if several hosts lack the same files, a host that has the files sends them to all of
these hosts in one broadcast.
"""

from __future__ import annotations

from tfdeploy.planning.broadcast.streams import Stream, assign_streams

SIZES = [0, 10, 10, 10, 0, 10]
PARTS = {"n1": [1, 2], "n2": [3, 4, 5]}


def test_this_machine_sends_each_part_only_to_its_host() -> None:
    assert assign_streams(PARTS, PARTS, SIZES, {}) == [
        Stream(("n1",), None, [1, 2]),
        Stream(("n2",), None, [3, 5]),
    ]


def test_host_sends_files_that_it_already_has() -> None:
    moved = assign_streams(PARTS, {"n1": [2], "n2": [3, 5]}, SIZES, {"n3": [1, 2, 5]})
    assert moved == [
        Stream(("n1",), "n3", [2]),
        Stream(("n2",), None, [3]),
        Stream(("n2",), "n3", [5]),
    ]


def test_lending_hosts_and_origin_share_work() -> None:
    moved = assign_streams(
        {"n1": [1, 2, 3, 5]}, {"n1": [1, 2, 3, 5]}, SIZES, {"n3": [1, 2]}, origin="n9"
    )
    assert [(stream.lender, stream.rows) for stream in moved] == [("n3", [1]), ("n9", [2, 3, 5])]


def test_hosts_that_lack_same_files_receive_them_together() -> None:
    wanting = {"n1": [1, 2], "n2": [3], "ps": [1, 2, 3]}
    moved = assign_streams(wanting, {"n1": [], "n2": [3], "ps": [2, 3]}, SIZES, {"n1": [1, 2]})
    assert moved == [Stream(("ps",), "n1", [2]), Stream(("n2", "ps"), None, [3])]
