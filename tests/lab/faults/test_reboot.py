"""Test a host that reboots during a run. Clients report the reboot, and a client that follows the
run resumes the run on that host.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.jobs import open_gate, write_job
from support.lab.remains import assert_nothing_left
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
RESTART = {"max": 3, "backoff": ["100ms", "1s"]}


@pytest.fixture
def operator(isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(isolated_lab)


def rows_of(operator: Tfdeploy, run: str) -> dict[str, dict[str, Any]]:
    return {row["task"]: row for row in operator.json("status", run)["tasks"]}


def reboot(operator: Tfdeploy, *hosts: str) -> None:
    for host in hosts:
        operator.lab.kill(host)
    for host in hosts:
        operator.lab.boot(host)


def running(operator: Tfdeploy, run: str) -> None:
    wait_for(
        lambda: all(row["state"] == "running" for row in rows_of(operator, run).values()),
        30,
        "all tasks run",
    )


def follow(
    operator: Tfdeploy, out: Path, *args: str
) -> tuple[subprocess.Popen[str], Callable[[], str]]:
    with out.open("w") as stream:
        return operator.start(*args, stdout=stream), out.read_text


@pytest.mark.fault("40 a host is rebooted: lost, and what to type")
def test_status_says_what_a_reboot_took_and_watching_brings_it_back(operator: Tfdeploy) -> None:
    write_job(operator, "reboot", "quick.py", "--steps=100000", restart=RESTART)
    operator.run("launch", "--detach", "--name", "reboot-1", exit_code=0)
    running(operator, "reboot-1")
    reboot(operator, "n3")
    row = rows_of(operator, "reboot-1")["worker:1"]
    assert (row["state"], row["outcome"], row["reason"], row["attempt"]) == (
        "lost",
        "lost",
        "host rebooted",
        1,
    )
    completed = operator.run("status", "reboot-1", exit_code=0)
    assert (
        "host rebooted" in completed.stdout
        and "next: `tfdeploy status reboot-1 --watch`" in completed.stderr
    )
    # A plain `status` does not resume the run.
    assert operator.marked("n3", "reboot-1") == []
    watching, seen = follow(operator, operator.home / "watched", "status", "--watch", "reboot-1")
    wait_for(
        lambda: rows_of(operator, "reboot-1")["worker:1"]["attempt"] == 2,
        30,
        "worker:1 starts again",
    )
    running(operator, "reboot-1")
    rows = rows_of(operator, "reboot-1")
    assert {task: row["attempt"] for task, row in rows.items()} == {
        "ps:0": 1,
        "worker:0": 1,
        "worker:1": 2,
        "worker:2": 1,
    }
    operator.run("stop", "reboot-1", exit_code=0)
    assert watching.wait(timeout=120) == 0, seen()
    assert_nothing_left(operator, "reboot-1", "reboot")


@pytest.mark.long
@pytest.mark.fault("50 a host is off during the stop, and boots: followed, it keeps nothing")
def test_a_host_that_boots_after_the_stop_is_told_by_who_follows(operator: Tfdeploy) -> None:
    write_job(operator, "late", "quick.py", "--steps=100000", restart=RESTART)
    operator.run("launch", "--detach", "--name", "late-1", exit_code=0)
    running(operator, "late-1")
    following, seen = follow(operator, operator.home / "followed", "logs", "-f", "late-1")
    wait_for(lambda: "worker:1" in seen(), 30, "it follows")
    operator.lab.kill("n3")
    operator.run("stop", "late-1", exit_code=4)
    operator.lab.boot("n3")
    assert_nothing_left(operator, "late-1", "late")
    assert following.wait(timeout=120) in (0, 4), seen()


@pytest.mark.long
@pytest.mark.fault("55 a host boots after its run has succeeded: looked at, it keeps no key")
def test_a_host_that_boots_after_the_end_is_told_by_who_looks(operator: Tfdeploy) -> None:
    ends = {"finish": {"grace": "1s"}, "stop": {"grace": "1s"}}
    write_job(operator, "missed", "quick.py", "--steps=100", restart=RESTART, **ends)
    operator.run("launch", "--detach", "--name", "missed-1", exit_code=0)
    operator.lab.kill("n3")
    here = [
        operator.lab.root / f"hosts/{host}/home/tfdeploy/missed/runs/missed-1/hosts/{host}"
        for host in ("n1", "n2", "n4")
    ]
    wait_for(
        lambda: all('"phase":"ended"' in (each / "state.json").read_text() for each in here),
        60,
        "the others have ended",
    )
    operator.lab.boot("n3")
    operator.run("status", "missed-1", "--watch", exit_code=0, timeout_s=60)
    answer = operator.json("status", "missed-1")
    assert answer["state"] == "succeeded", answer
    assert_nothing_left(operator, "missed-1", "missed")


@pytest.mark.long
@pytest.mark.fault("40 a host is rebooted: its followed lines go on")
@pytest.mark.parametrize(
    "args", [("launch", "--wait", "--name"), ("logs", "-f", "--output", "text")]
)
def test_who_follows_sees_the_run_go_on_to_its_end(
    operator: Tfdeploy, args: tuple[str, ...]
) -> None:
    run = f"follow-{args[0]}"
    write_job(operator, run, "quick.py", "--steps=60", "--gate=40", restart=RESTART)
    if args[0] == "logs":
        operator.run("launch", "--detach", "--name", run, exit_code=0)
    following, seen = follow(operator, operator.home / "followed", *args, run)
    wait_for(lambda: "worker:1@n3 | step 5 " in seen(), 30, "the first lines")
    reboot(operator, "n3")
    wait_for(lambda: seen().count("worker:1@n3 | starting at step 0") == 2, 60, "it starts again")
    open_gate(operator, run, run)
    assert following.wait(timeout=120) == 0, seen()
    _first, again = seen().split("worker:1@n3 | starting at step 0")[1:]
    steps = [line for line in again.splitlines() if line.startswith("worker:1@n3 | step ")]
    assert steps and steps[0].startswith("worker:1@n3 | step 1 ")
    assert rows_of(operator, run)["worker:0"]["outcome"] == "succeeded"
    operator.wait_until("succeeded", run)
    assert_nothing_left(operator, run, run)


@pytest.mark.long
@pytest.mark.fault("40 all hosts lose power at once")
def test_a_power_cut_everywhere(operator: Tfdeploy) -> None:
    write_job(
        operator,
        "dark",
        "quick.py",
        "--steps=60",
        "--gate=30",
        "--save",
        keep=["checkpoints"],
        restart=RESTART,
    )
    following, seen = follow(
        operator, operator.home / "followed", "launch", "--wait", "--name", "dark-1"
    )
    wait_for(lambda: "worker:0@n2 | step 20 " in seen(), 30, "the first steps")
    reboot(operator, *operator.lab.hosts)
    open_gate(operator, "dark-1", "dark")
    assert following.wait(timeout=120) == 0, seen()
    assert "worker:0@n2 | starting at step 0" in seen() and "done at step 60" in seen()
    chief = operator.run(
        "logs", "dark-1", "--task", "worker:0", "--output", "raw", exit_code=0
    ).stdout
    assert (
        chief.count("starting at step") == 2
        and "starting at step 0" not in chief.split("starting at step", 2)[2]
    )
    assert_nothing_left(operator, "dark-1", "dark")


@pytest.mark.long
@pytest.mark.fault("40 the only host of a run is rebooted")
def test_a_run_of_one_host_is_followed_across_its_reboot(operator: Tfdeploy) -> None:
    """While its only host reboots, the run has no process. The client must not take this for the
    end of the run.
    """
    write_job(
        operator,
        "single",
        "quick.py",
        "--steps=60",
        "--gate=30",
        "--save",
        mode="local",
        keep=["checkpoints"],
        restart=RESTART,
    )
    following, seen = follow(
        operator, operator.home / "followed", "launch", "--wait", "--name", "single-1"
    )
    wait_for(lambda: " | step 20 " in seen(), 30, "the first steps")
    (host,) = {row["host"] for row in rows_of(operator, "single-1").values()}
    reboot(operator, host)
    open_gate(operator, "single-1", "single", host)
    assert following.wait(timeout=120) == 0, seen()
    assert seen().count("| starting at step") == 2 and "done at step 60" in seen()
    assert_nothing_left(operator, "single-1", "single")


@pytest.mark.long
@pytest.mark.fault("40 a host of a gang is rebooted")
def test_a_gang_waits_for_its_host_and_starts_together(operator: Tfdeploy) -> None:
    write_job(operator, "gang", "quick.py", "--steps=100000", mode="mirrored", restart=RESTART)
    operator.run("launch", "--detach", "--name", "gang-1", exit_code=0)
    running(operator, "gang-1")
    reboot(operator, "n3")
    following, seen = follow(operator, operator.home / "followed", "logs", "-f", "gang-1")
    tasks = rows_of(operator, "gang-1")
    wait_for(
        lambda: {row["attempt"] for row in rows_of(operator, "gang-1").values()} == {2},
        60,
        f"{sorted(tasks)} start again",
    )
    running(operator, "gang-1")
    operator.run("stop", "gang-1", exit_code=0)
    assert following.wait(timeout=120) == 0, seen()
    assert_nothing_left(operator, "gang-1", "gang")


@pytest.mark.long
@pytest.mark.fault("40 a host is rebooted, no restart allowed")
def test_without_restarts_the_run_fails_by_it(operator: Tfdeploy) -> None:
    write_job(operator, "norestart", "quick.py", "--steps=100000")
    following, seen = follow(
        operator, operator.home / "followed", "launch", "--wait", "--name", "norestart-1"
    )
    wait_for(lambda: "worker:1@n3 | step 5 " in seen(), 30, "the first steps")
    reboot(operator, "n3")
    assert following.wait(timeout=120) == 1, seen()
    assert "worker:1 on n3 lost: host rebooted" in seen()
    assert operator.state("norestart-1") == "failed"
    assert_nothing_left(operator, "norestart-1", "norestart")
