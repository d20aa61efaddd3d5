"""Test the error for hosts that cannot reach each other: which pairs of hosts the error names, and
that it stays short.
"""

from __future__ import annotations

from tfdeploy.errors import Refused
from tfdeploy.model.answers.runs import UnreachablePort
from tfdeploy.model.inventory import Host
from tfdeploy.operations.launching.reachability import unreachable_error

ASKED = {"n1": 3, "n2": 3, "n3": 3, "n4": 3}
HOSTS = [Host(name=f"n{number}", address=f"10.0.0.{number}") for number in range(1, 33)]


def shut(
    seen_from: str, to: str, task: str = "", reason: str = "no answer"
) -> tuple[str, UnreachablePort]:
    return seen_from, UnreachablePort(
        host=to, task=task, address=f"10.0.0.{to[1:]}:{2223 if task else 2222}", why=reason
    )


def refused(
    ports: list[tuple[str, UnreachablePort]], hosts: list[Host], asked: dict[str, int]
) -> Refused:
    ports_by_host: dict[str, list[UnreachablePort]] = {}
    for seen_from, port in ports:
        ports_by_host.setdefault(seen_from, []).append(port)
    return unreachable_error(ports_by_host, hosts, asked)


def test_pair_is_one_line_with_all_ports() -> None:
    error = refused(
        [shut("n2", "n3"), shut("n2", "n3", "worker:1"), shut("n1", "n3", reason="closed")],
        HOSTS[:4],
        ASKED,
    )
    assert error.exit_code == 3
    assert error.what.splitlines()[1:] == [
        "  n2 does not reach n3: no answer at 10.0.0.3:2222, 10.0.0.3:2223 (worker:1)",
        "  n1 does not reach n3: nobody listens at 10.0.0.3:2222",
    ]
    assert (
        error.where == "n3"
        and "2222-2299" in str(error.next)
        and "`advertise:` of n3" in str(error.next)
    )


def test_host_that_no_other_reaches_is_one_line() -> None:
    doors = [shut(host, "n3", task) for host in ("n1", "n2", "n4") for task in ("", "worker:1")]
    error = refused([*doors, shut("n3", "n1")], HOSTS[:4], ASKED)
    assert error.what.splitlines()[1:] == [
        "  no other host reaches n3: no answer at 10.0.0.3:2222, 10.0.0.3:2223 (worker:1)",
        "  n3 does not reach n1: no answer at 10.0.0.1:2222",
    ]


def test_both_of_two_hosts_are_named() -> None:
    assert "n1 does not reach n2" in refused([shut("n1", "n2")], HOSTS[:2], {"n1": 1, "n2": 1}).what


def test_many_pairs_are_counted() -> None:
    doors = [shut(source.name, target.name) for source in HOSTS[:16] for target in HOSTS[16:]]
    lines = refused(doors, HOSTS, {}).what.splitlines()
    assert len(lines) == 12 and lines[-1] == "  and 246 more pairs"
