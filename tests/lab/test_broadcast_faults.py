"""A broadcast in which a relay dies, stands still, is cut off or not reached: the others complete, and it is named."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from support.lab.commandline import Tfdeploy, ended
from support.lab.filters import cut_between
from support.lab.hosts import on_host
from support.lab.releases import job_file, leftovers, listed, listed_here, wait_for_bytes
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
MIB = 1 << 20
SET_BYTES = 20 * MIB
RATE = "4M"  # a broadcast takes some 5 s
AGENT = "pgrep -f '[ ]-S -E '"


@pytest.fixture(scope="module")
def five_hosts(new_lab: Callable[..., Lab]) -> Lab:
    return new_lab("isolated", 5)


@pytest.fixture
def operator(five_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(five_hosts)


@contextmanager
def half_way(operator: Tfdeploy, name: str) -> Iterator[list[tuple[int, str]]]:
    """A broadcast of `name` that is half way when the block begins; its end is in the list when the block has ended."""
    job_file(operator, name, data={"d": "./data"})
    (operator.cwd / "data").mkdir(exist_ok=True)
    (operator.cwd / "data/shard").write_bytes(os.urandom(SET_BYTES))
    syncing = operator.start("sync", "--bwlimit", RATE)
    wait_for_bytes(operator, "n5", name, SET_BYTES // 2)
    done: list[tuple[int, str]] = []
    yield done
    done.append(ended(syncing, 90.0))


def assert_arrived(operator: Tfdeploy, name: str, *hosts: str) -> None:
    for host in hosts or operator.lab.hosts:
        assert listed(operator, host, f"{name}/data/d") == listed_here(operator.cwd / "data"), host
        assert leftovers(operator, host, name) == "", host


@pytest.mark.fault("64 a relay dies half way")
def test_a_relay_that_is_killed_is_named_and_the_others_complete(operator: Tfdeploy) -> None:
    with half_way(operator, "killed") as done:
        on_host(operator.lab, "n3", f"kill -9 $({AGENT})")
    code, said = done[0]
    assert code == 4 and "[n3] data d failed" in said, said
    assert "n3    failed" in said and said.count("  ok  ") == 4, said
    assert_arrived(operator, "killed", "n1", "n2", "n4", "n5")
    rows = operator.json("sync", exit_code=0)["hosts"]
    sent = {row["host"]: row["bytes_sent"] for row in rows}
    assert 0 < sent.pop("n3") < SET_BYTES * 3 // 4 and not any(sent.values()), rows  # it goes on where it was
    assert_arrived(operator, "killed")


@pytest.mark.long
@pytest.mark.fault("64 a relay is cut off half way")
def test_a_relay_that_is_cut_off(operator: Tfdeploy) -> None:
    with half_way(operator, "cut") as done:
        operator.lab.cut("n2")
        wait_for(lambda: not on_host(operator.lab, "n5", "ls -A ~/tfdeploy/cut/data | grep new || true"), 60, "the others end")
        operator.lab.heal("n2")
    code, said = done[0]
    assert code == 4 and "n2    failed" in said and said.count("  ok  ") == 4, said
    assert_arrived(operator, "cut", "n1", "n3", "n4", "n5")
    wait_for(lambda: operator.run("exec", "--limit", "n2", "--", "true").returncode == 0, 60, "n2 is reached again")
    operator.run("sync", exit_code=0)
    assert_arrived(operator, "cut")


@pytest.mark.long
@pytest.mark.fault("64 a relay stands still")
def test_a_relay_that_stands_still_holds_nobody_up(operator: Tfdeploy) -> None:
    with half_way(operator, "still") as done:
        agent = on_host(operator.lab, "n2", AGENT).split()
        on_host(operator.lab, "n2", f"kill -STOP {' '.join(agent)}")
        try:
            at = int((operator.cwd / "data/shard").stat().st_mtime)
            whole = (
                f"stat -c %Y ~/tfdeploy/still/data/.d.new/shard ~/tfdeploy/still/data/d/shard 2>/dev/null | grep -x {at} || true"
            )
            for host in ("n3", "n4", "n5"):
                wait_for(partial(on_host, operator.lab, host, whole), 30, f"{host} has all")
        finally:
            on_host(operator.lab, "n2", f"kill -CONT {' '.join(agent)} || true")
    code, said = done[0]
    assert code in (0, 4), said  # it may have been silent for too long
    assert_arrived(operator, "still", "n1", "n3", "n4", "n5")


@pytest.mark.fault("64 two hosts do not reach each other")
def test_two_hosts_that_do_not_reach_each_other(operator: Tfdeploy) -> None:
    job_file(operator, "pair", data={"d": "./data"})
    (operator.cwd / "data").mkdir()
    (operator.cwd / "data/shard").write_bytes(os.urandom(SET_BYTES))
    with cut_between(operator.lab, "n3", "n2"), cut_between(operator.lab, "n5", "n4"):
        operator.run("sync", exit_code=0)
    assert_arrived(operator, "pair")


@pytest.mark.long
@pytest.mark.fault("65 kill -9 of tfdeploy in the middle")
def test_a_broadcast_whose_tfdeploy_is_killed_leaves_nothing_but_halves(operator: Tfdeploy) -> None:
    name = "control"
    job_file(operator, name, data={"d": "./data"})
    (operator.cwd / "data").mkdir()
    (operator.cwd / "data/shard").write_bytes(os.urandom(SET_BYTES))
    syncing = operator.start("sync", "--bwlimit", RATE)
    wait_for_bytes(operator, "n5", name, SET_BYTES // 2)
    os.kill(syncing.pid, signal.SIGKILL)
    syncing.wait(30)
    for host in operator.lab.hosts:
        wait_for(lambda host=host: not on_host(operator.lab, host, f"{AGENT} || true"), 60, f"no agent is left on {host}")
        assert on_host(operator.lab, host, "ss -Hltn | grep -c ':22[0-9][0-9]' || true") == "0"
        assert sorted(on_host(operator.lab, host, f"ls -A ~/tfdeploy/{name}/data").split()) == [
            ".d.listing",
            ".d.new",
            "d.tfdeploy",
        ]
    rows = operator.json("sync", exit_code=0)["hosts"]
    assert all(0 < row["bytes_sent"] < SET_BYTES * 3 // 4 for row in rows), rows
    assert_arrived(operator, name)
