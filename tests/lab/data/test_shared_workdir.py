"""Test a workdir that all hosts share, as in university labs: one release for all hosts, and a run
folder for each host.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated


@pytest.fixture(scope="module")
def shared(new_lab: Callable[..., Lab]) -> Lab:
    return new_lab("isolated", 3, shared_workdir=True)


@pytest.fixture
def operator(shared: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(shared)


def test_sync_launch_logs_and_stop(operator: Tfdeploy) -> None:
    (operator.cwd / "data").mkdir()
    (operator.cwd / "data/one").write_text("1")
    write_job(operator, "nfs", "quick.py", "--steps=100000", data={"d": "./data"})
    answer = operator.json("sync")
    assert answer["ok"] and len({row["release"] for row in answer["hosts"]}) == 1
    releases = on_host(operator.lab, "n1", "ls -A ~/tfdeploy/nfs/releases | grep -v json").split()
    assert releases == [answer["hosts"][0]["release"]]
    assert on_host(operator.lab, "n3", "cat ~/tfdeploy/nfs/data/d/one") == "1"

    operator.run("launch", "--detach", "--name", "nfs-1", exit_code=0)
    status = operator.json("status", "nfs-1")
    assert status["state"] == "running"
    assert {row["task"]: row["host"] for row in status["tasks"]} == {
        "ps:0": "n1",
        "worker:0": "n2",
        "worker:1": "n3",
    }
    for host in operator.lab.hosts:
        assert operator.marked(host, "nfs-1")
    rows = [
        json.loads(line)
        for line in operator.run("logs", "nfs-1", "--json", exit_code=0).stdout.splitlines()
    ]
    assert {(row["task"], row["host"]) for row in rows} == {
        ("ps:0", "n1"),
        ("worker:0", "n2"),
        ("worker:1", "n3"),
    }
    assert len({(row["task"], row["line"]) for row in rows}) == len(rows)

    refused = operator.run("launch", "--detach", exit_code=3)
    assert "nfs-1" in refused.stderr
    (row,) = (
        operator.json("runs")["runs"]
        if isinstance(operator.json("runs"), dict)
        else operator.json("runs")
    )
    assert row["run"] == "nfs-1"
    stopped = operator.json("stop", "nfs-1", "--grace", "2s")
    assert stopped["ok"] and [row["survivors"] for row in stopped["hosts"]] == [[], [], []]
    assert_nothing_left(operator, "nfs-1", "nfs")
    assert operator.state("nfs-1") == "stopped"


def test_a_run_that_ends_by_itself_and_goes_on_from_its_checkpoints(operator: Tfdeploy) -> None:
    write_job(operator, "nfs-keep", "quick.py", "--steps=5", "--save", keep=["checkpoints"])
    operator.run("launch", "--wait", "--name", "nfs-keep-1", exit_code=0)
    again = operator.run(
        "launch",
        "--wait",
        "--name",
        "nfs-keep-2",
        "--",
        "python",
        "quick.py",
        "--steps=9",
        "--save",
        exit_code=0,
    )
    assert "continues from" in again.stderr
    first = [
        json.loads(line)["line"]
        for line in operator.run(
            "logs", "nfs-keep-2", "--task", "worker:0", "--json"
        ).stdout.splitlines()
    ]
    assert "starting at step 5" in first
    fetched = operator.run("fetch", "nfs-keep-2", exit_code=0).stderr
    assert "which has the newest folders" in fetched
    assert "to fetch the folders of" not in fetched
    assert_nothing_left(operator, "nfs-keep-2", "nfs-keep")


def test_two_syncs_at_once_end_in_one_whole_release(operator: Tfdeploy) -> None:
    write_job(operator, "nfs-two", "quick.py")
    (operator.cwd / "big.bin").write_bytes(bytes(range(256)) * 40_000)
    both = [operator.start("sync", "--json") for _ in range(2)]
    for each in both:
        output, _ = each.communicate(timeout=120)
        assert each.returncode == 0, output
    listing = on_host(
        operator.lab, "n2", "ls -A ~/tfdeploy/nfs-two/releases | grep -v json"
    ).split()
    assert len(listing) == 1


@pytest.mark.fault("28 clones with one hostname that share a workdir")
def test_clones_with_one_hostname_have_a_place_each(operator: Tfdeploy) -> None:
    for host in operator.lab.hosts:
        on_host(operator.lab, host, "hostname ubuntu", root=True)
    try:
        write_job(operator, "nfs-clones", "quick.py", "--steps=100000")
        operator.run("launch", "--detach", "--name", "nfs-clones-1", exit_code=0)
        status = operator.json("status", "nfs-clones-1")
        assert {row["task"]: row["host"] for row in status["tasks"]} == {
            "ps:0": "n1",
            "worker:0": "n2",
            "worker:1": "n3",
        }
        # Each host counts only its own processes, although all hosts have the same hostname.
        assert status["state"] == "running" and all(row["pid"] for row in status["tasks"])
        stopped = operator.json("stop", "nfs-clones-1", "--grace", "2s")
        assert stopped["ok"] and [row["survivors"] for row in stopped["hosts"]] == [[], [], []]
        assert_nothing_left(operator, "nfs-clones-1", "nfs-clones")
    finally:
        for host in operator.lab.hosts:
            on_host(operator.lab, host, f"hostname {host}", root=True)


def test_fresh_sets_the_shared_keep_aside_once_and_puts_it_back_once(operator: Tfdeploy) -> None:
    write_job(operator, "nfs-fresh", "quick.py", "--steps=5", "--save", keep=["checkpoints"])
    operator.run("launch", "--wait", "-q", "--name", "nf-1", exit_code=0)
    write_job(operator, "nfs-fresh", "quick.py", "--steps=3", "--save", keep=["checkpoints"])
    operator.run("launch", "--wait", "-q", "--fresh", "--name", "nf-2", exit_code=0)
    saved = "./checkpoints.before-nf-2/step:5 ./checkpoints/step:3"
    assert kept(operator) == saved
    write_job(
        operator,
        "nfs-fresh",
        "quick.py",
        "--steps=9",
        "--save",
        "--failat=2",
        "--unready=worker:1",
        keep=["checkpoints"],
        ready={"after": "60s"},
    )
    operator.run("launch", "--wait", "-q", "--fresh", "--name", "nf-3", exit_code=1)
    assert "./checkpoints.undone-nf-3/step:1" in kept(operator) and "before-nf-3" not in kept(
        operator
    )
    assert "./checkpoints/step:3" in kept(operator)


def kept(operator: Tfdeploy) -> str:
    return " ".join(
        on_host(
            operator.lab, "n1", "cd ~/tfdeploy/nfs-fresh/keep && grep -sH . ./*/step | sort"
        ).split()
    )
