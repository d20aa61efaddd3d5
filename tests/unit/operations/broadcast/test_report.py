"""Test that the report of a broadcast names the right link as the slowest.

For each host, the report has the highest rate at which the host received data, and the host that
sent this data.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tfdeploy.operations.broadcast.report import slowest_link

MB = 1_000_000.0
CHAIN: dict[str, dict[int, str]] = {"n1": {0: ""}, "n2": {0: "n1"}, "n3": {0: "n2"}}


def find_slowest_link(
    fed: dict[str, dict[int, str]], **rates: float | None
) -> tuple[str, list[str], float] | None:
    members: Any = {name: SimpleNamespace(best_rate=rate) for name, rate in rates.items()}
    slowest = slowest_link(members, fed)
    return slowest and (slowest["host"], slowest["parents"], slowest["rate"])


def test_first_of_similar_links_is_slowest() -> None:
    assert find_slowest_link(CHAIN, n1=5.9 * MB, n2=5.8 * MB, n3=5.7 * MB) == ("n1", [""], 5.9 * MB)


def test_slow_link_explains_slow_hosts_behind_it() -> None:
    assert find_slowest_link(CHAIN, n1=50 * MB, n2=5.0 * MB, n3=4.9 * MB) == (
        "n2",
        ["n1"],
        5.0 * MB,
    )


def test_host_with_two_stripes_has_two_parents() -> None:
    fed = {"n1": {0: "", 1: "n2"}, "n2": {0: "n1", 1: ""}, "n3": {0: "n1", 1: "n2"}}
    assert find_slowest_link(fed, n1=50 * MB, n2=50 * MB, n3=5.0 * MB) == (
        "n3",
        ["n1", "n2"],
        5.0 * MB,
    )


def test_feeds_may_form_cycle() -> None:
    assert find_slowest_link({"n1": {0: "n2"}, "n2": {0: "n1"}}, n1=1.0, n2=3.0) == (
        "n1",
        ["n2"],
        1.0,
    )


def test_unmeasured_rates_name_no_link() -> None:
    assert find_slowest_link(CHAIN, n1=None, n2=None, n3=None) is None
