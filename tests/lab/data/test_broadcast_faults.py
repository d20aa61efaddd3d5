"""Test a broadcast in which a relay (a host that passes data on) dies, hangs, is cut off or cannot
be reached.

The other hosts receive everything, and the output names the relay.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from support.faults.tampered import tampered_agent
from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.filters import cut_between
from support.lab.host_commands import host_command
from support.lab.hosts import host_changed_by_scripts, on_host
from support.lab.releases import (
    job_file,
    list_host_folder,
    list_leftovers,
    list_local_folder,
    wait_for_bytes,
)
from support.waiting import wait_for
from tfdeploy.agent.broadcast import holdings
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
MIB = 1 << 20
SET_BYTES = 20 * MIB
# At this rate a broadcast takes about 5 s.
RATE = "4M"
AGENT = "pgrep -f '[ ]-S -E '"


@pytest.fixture(scope="module")
def five_hosts(new_lab: Callable[..., Lab]) -> Lab:
    return new_lab("isolated", 5)


@pytest.fixture
def operator(five_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(five_hosts)


@contextmanager
def half_way(operator: Tfdeploy, name: str) -> Iterator[list[tuple[int, str]]]:
    """Start a sync of the job `name`, and run the block when its broadcast is half done.

    Yield an empty list. After the block, the list contains the exit code and the output of the
    sync.
    """
    job_file(operator, name, data={"d": "./data"})
    (operator.cwd / "data").mkdir(exist_ok=True)
    (operator.cwd / "data/shard").write_bytes(os.urandom(SET_BYTES))
    syncing = operator.start("sync", "--bwlimit", RATE)
    wait_for_bytes(operator, "n5", name, SET_BYTES // 2)
    done: list[tuple[int, str]] = []
    yield done
    done.append(wait_for_end(syncing, 90.0))


def assert_arrived(operator: Tfdeploy, name: str, *hosts: str) -> None:
    for host in hosts or operator.lab.hosts:
        assert list_host_folder(operator, host, f"{name}/data/d") == list_local_folder(
            operator.cwd / "data"
        ), host
        assert list_leftovers(operator, host, name) == "", host


@contextmanager
def no_agent_lives(operator: Tfdeploy, host: str) -> Iterator[None]:
    """During the block, kill each agent on the host as soon as it starts."""
    script = (
        f"touch ~/killing; while test -e ~/killing; do kill -9 $({AGENT}) 2>/dev/null; sleep "
        "0.05; done"
    )
    killer = subprocess.Popen(host_command(operator.lab, host, ["sh", "-c", script]))
    try:
        yield
    finally:
        on_host(operator.lab, host, "rm ~/killing")
        killer.wait(30)


@pytest.mark.fault("64 a relay dies half way")
def test_a_relay_that_is_killed_is_named_and_the_others_complete(operator: Tfdeploy) -> None:
    with ExitStack() as until_it_ended, half_way(operator, "killed") as done:
        until_it_ended.enter_context(no_agent_lives(operator, "n3"))
    code, said = done[0]
    assert code == 4 and "[n3] data d failed" in said, said
    assert "n3    failed" in said and said.count("  ok  ") == 4, said
    assert_arrived(operator, "killed", "n1", "n2", "n4", "n5")
    rows = operator.json("sync", exit_code=0)["hosts"]
    sent = {row["host"]: row["bytes_sent"] for row in rows}
    # The transfer to n3 is resumed: not all bytes are sent again.
    assert 0 < sent.pop("n3") < SET_BYTES * 3 // 4 and not any(sent.values()), rows
    assert_arrived(operator, "killed")


@pytest.mark.long
def test_a_relay_whose_agent_is_killed_comes_back_and_goes_on(operator: Tfdeploy) -> None:
    with half_way(operator, "back") as done:
        on_host(operator.lab, "n3", f"kill -9 $({AGENT})")
    code, said = done[0]
    assert code == 0 and "connecting again" in said and said.count("  ok  ") == 5, said
    assert_arrived(operator, "back")


@pytest.mark.long
@pytest.mark.fault("64 a relay is cut off half way")
def test_a_relay_that_is_cut_off(operator: Tfdeploy) -> None:
    try:
        with half_way(operator, "cut") as done:
            operator.lab.cut("n2")
            staged = "ls -A ~/tfdeploy/cut/data | grep new || true"
            for host in ("n1", "n3", "n4", "n5"):
                wait_for(
                    lambda host=host: not on_host(operator.lab, host, staged),
                    30,
                    "the others are complete",
                )
            # The sync still waits for n2, although the other hosts are complete.
            assert not done
            assert_arrived(operator, "cut", "n1", "n3", "n4", "n5")
    finally:
        operator.lab.heal("n2")
    code, said = done[0]
    assert code == 4 and "n2    failed" in said and said.count("  ok  ") == 4, said
    wait_for(
        lambda: operator.run("exec", "--limit", "n2", "--", "true").returncode == 0,
        60,
        "n2 is reached again",
    )
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
                "stat -c %Y ~/tfdeploy/still/data/.d.new/shard ~/tfdeploy/still/data/d/shard "
                f"2>/dev/null | grep -x {at} || true"
            )
            for host in ("n3", "n4", "n5"):
                wait_for(partial(on_host, operator.lab, host, whole), 30, f"{host} has all")
        finally:
            on_host(operator.lab, "n2", f"kill -CONT {' '.join(agent)} || true")
    code, said = done[0]
    # The exit code is 4 if n2 was silent for longer than tfdeploy waits.
    assert code in (0, 4), said
    assert_arrived(operator, "still", "n1", "n3", "n4", "n5")


@pytest.mark.fault("64 two hosts do not reach each other")
def test_two_hosts_that_do_not_reach_each_other(operator: Tfdeploy) -> None:
    job_file(operator, "pair", data={"d": "./data"})
    (operator.cwd / "data").mkdir()
    (operator.cwd / "data/shard").write_bytes(os.urandom(SET_BYTES))
    with cut_between(operator.lab, "n3", "n2"), cut_between(operator.lab, "n5", "n4"):
        answer = operator.json("sync", exit_code=0)
    assert_arrived(operator, "pair")
    (row,) = answer["broadcasts"]
    assert (row["what"], row["hosts"], row["bytes"]) == ("data d", 5, SET_BYTES)
    assert SET_BYTES <= row["bytes_from_here"] < 2 * SET_BYTES and row["seconds"] > 0
    fed = {feed["to"]: feed["from"] for feed in row["feeds"]}
    assert set(fed) == set(operator.lab.hosts) and "control" in fed.values()
    assert (fed["n3"], fed["n5"]) != ("n2", "n4")
    assert {each["host"]: each["from"] for each in answer["hosts"]} == fed


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
        wait_for(
            lambda host=host: not on_host(operator.lab, host, f"{AGENT} || true"),
            60,
            f"no agent is left on {host}",
        )
        assert on_host(operator.lab, host, "ss -Hltn | grep -c ':22[0-9][0-9]' || true") == "0"
        assert sorted(on_host(operator.lab, host, f"ls -A ~/tfdeploy/{name}/data").split()) == [
            ".d.listing",
            ".d.new",
            "d.tfdeploy",
        ]
    rows = operator.json("sync", exit_code=0)["hosts"]
    assert all(0 < row["bytes_sent"] < SET_BYTES * 3 // 4 for row in rows), rows
    assert_arrived(operator, name)


LIES = """
def _lie(self, segment, index, _read=Holdings.read):
    return _read(self, segment, index)[::-1]
Holdings.read = _lie
"""


@pytest.mark.long
@pytest.mark.fault("64 a relay sends wrong pieces")
def test_a_relay_that_lies_is_named_and_routed_around(operator: Tfdeploy) -> None:
    with tampered_agent(operator.lab, "n2", {holdings: LIES}), half_way(operator, "lies") as done:
        pass
    code, said = done[0]
    assert code == 0 and re.search("n2 sent n[1-5] a wrong piece", said), said
    # n2 must have the right content too, because it sends wrong pieces but receives right pieces.
    assert_arrived(operator, "lies")


@pytest.mark.long
def test_a_relay_that_sends_slowly_feeds_nobody(operator: Tfdeploy) -> None:
    """A relay that is too slow gets no hosts to send to. In this test, the relay n3 would need 160
    s to send 20 MiB to the next host.
    """
    slow, quick = (
        "tc qdisc add dev eth0 root tbf rate 1mbit burst 32kb latency 400ms",
        "tc qdisc del dev eth0 root",
    )
    job_file(operator, "slow", data={"d": "./data"})
    (operator.cwd / "data").mkdir()
    (operator.cwd / "data/shard").write_bytes(os.urandom(SET_BYTES))
    with host_changed_by_scripts(operator.lab, "n3", slow, quick):
        answer = operator.json("sync", "--bwlimit", RATE, exit_code=0)
    assert_arrived(operator, "slow")
    (row,) = answer["broadcasts"]
    assert "n3" not in {feed["from"] for feed in row["feeds"]} and row["seconds"] < 40, row


FULL = (
    "mount -t tmpfs -o size=30m tmpfs /home/lab/tfdeploy && chown lab: /home/lab/tfdeploy && "
    "chmod 700 /home/lab/tfdeploy"
)


@pytest.mark.long
@pytest.mark.fault("64 the disk of a relay fills half way")
def test_a_relay_whose_disk_fills_is_named_and_the_others_complete(operator: Tfdeploy) -> None:
    on_host(operator.lab, "n3", "mkdir -p ~/tfdeploy")
    with host_changed_by_scripts(operator.lab, "n3", FULL, "umount -l /home/lab/tfdeploy"):
        with half_way(operator, "full") as done:
            on_host(operator.lab, "n3", "cat /dev/zero > ~/tfdeploy/filler || true")
        code, said = done[0]
        assert code == 1 and "No space left" in said and said.count("  ok  ") == 4, said
        assert_arrived(operator, "full", "n1", "n2", "n4", "n5")
        on_host(operator.lab, "n3", "rm ~/tfdeploy/filler")
        sent = {
            row["host"]: row["bytes_sent"] for row in operator.json("sync", exit_code=0)["hosts"]
        }
        assert 0 < sent.pop("n3") < SET_BYTES * 3 // 4 and not any(sent.values()), sent
        assert_arrived(operator, "full")


KILLS = int(os.environ.get("BROADCAST_KILLS", "50"))
LEFT = {".d.listing", ".d.new", "d", "d.json", "d.tfdeploy"}


@pytest.mark.soak
@pytest.mark.parametrize("seed", [7])
def test_kills_at_random_moments_leave_nothing_that_a_second_sync_does_not_mend(
    operator: Tfdeploy, seed: int
) -> None:
    """In each round, kill the client or the agent of one host. The kill comes when a random host
    has received a random number of bytes. A second sync must then succeed.
    """
    chance = random.Random(seed)
    job_file(operator, "kills", data={"d": "./data"})
    (operator.cwd / "data").mkdir()
    for number in range(KILLS):
        victim = [None, *operator.lab.hosts][number % (1 + len(operator.lab.hosts))]
        shards = range(3) if number % 2 else [chance.randrange(3)]
        for shard in shards:
            (operator.cwd / f"data/shard{shard}").write_bytes(chance.randbytes(4 * MIB))
        syncing = operator.start("sync", "--bwlimit", RATE)
        host, least = chance.choice(operator.lab.hosts), chance.randrange(len(shards) * 4 * MIB)
        wait_until_staged(operator, host, least, syncing)
        if victim is None:
            # The signal has no effect if the sync has already ended.
            syncing.kill()
        else:
            on_host(operator.lab, victim, f"kill -9 $({AGENT}) || true")
        wait_for_end(syncing, 90.0)
        what = f"round {number}, {victim or 'the client'} killed when {host} had {least} bytes"
        for each in operator.lab.hosts:
            left = set(
                on_host(
                    operator.lab, each, "ls -A ~/tfdeploy/kills/data 2>/dev/null || true"
                ).split()
            )
            assert left <= LEFT, f"{what}: {left} on {each}"
        second = operator.run("sync")
        assert second.returncode == 0, f"{what}: {second.stdout}{second.stderr}"
        for each in operator.lab.hosts:
            assert list_host_folder(operator, each, "kills/data/d") == list_local_folder(
                operator.cwd / "data"
            ), f"{what}: {each}"
            assert set(on_host(operator.lab, each, "ls -A ~/tfdeploy/kills/data").split()) == {
                "d",
                "d.json",
                "d.tfdeploy",
            }, what


def wait_until_staged(
    operator: Tfdeploy, host: str, least: int, syncing: subprocess.Popen[bytes]
) -> None:
    """Wait until the host's staging folder has at least `least` bytes, or the sync has ended."""
    script = (
        "find ~/tfdeploy/kills/data/.d.new -type f -printf '%b\\n' 2>/dev/null | awk '{s += $1} "
        "END {print 512 * s}'"
    )
    wait_for(
        lambda: (
            syncing.poll() is not None
            or int(on_host(operator.lab, host, script, check=False) or 0) >= least
        ),
        60,
        f"{least} bytes on {host}",
    )
