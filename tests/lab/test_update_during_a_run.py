"""Test an update of tfdeploy during a run. The last released version launched the run, and this
version takes it over.

The hosts keep the agents of both versions. Every process of the run starts further processes with
the version of the agent that it runs itself. So the old agent restarts tasks that died. Only
processes that `run.resume` starts after a reboot use the new agent.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host, reboot
from support.lab.jobs import open_gate, write_job
from support.lab.last_version import install_last_version
from support.lab.remains import assert_nothing_left
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = [pytest.mark.isolated, pytest.mark.soak]
RESTART = {"max": 3, "backoff": ["100ms", "1s"]}
TASKS = {"ps:0": "n1", "worker:0": "n2", "worker:1": "n3"}


@pytest.fixture
def old(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy], tmp_path: Path) -> Tfdeploy:
    """Return an operator who uses the last released version."""
    operator = tfdeploy(few_hosts)
    operator.env["PYTHONPATH"] = str(install_last_version(tmp_path / "last"))
    return operator


@pytest.fixture
def new(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    """Return an operator on another machine, who uses the tested version of tfdeploy. That machine
    has no record of the run.
    """
    return tfdeploy(few_hosts)


def launch(old: Tfdeploy, new: Tfdeploy, job: str, *flags: str, **keys: object) -> str:
    write_job(old, job, "quick.py", *flags, restart=RESTART, **keys)
    run = f"{job}-1"
    old.run("launch", "--detach", "--name", run, exit_code=0)
    wait_for(
        lambda: {row["state"] for row in rows_of(new, run).values()} == {"running"},
        30,
        "all tasks run",
    )
    return run


def rows_of(operator: Tfdeploy, run: str) -> dict[str, dict[str, Any]]:
    return {row["task"]: row for row in operator.json("status", run)["tasks"]}


def follow(operator: Tfdeploy, *args: str) -> tuple[subprocess.Popen[str], Callable[[], str]]:
    out = operator.home / f"followed-{args[0]}"
    with out.open("w") as stream:
        return operator.start(*args, stdout=stream), out.read_text


def processes_of(operator: Tfdeploy, host: str, run: str, word: str) -> dict[int, str]:
    """Return {pid: digest of the agent that the process runs}, for the processes of the run whose
    command line contains `word`: "minder" (one for each host) or "supervise" (one for each task).
    """
    script = (
        "for each in /proc/[0-9]*; do echo ${each#/proc/} $(tr '\\0' ' ' 2>/dev/null "
        "<$each/cmdline); done"
    )
    results = {}
    for words in map(str.split, on_host(operator.lab, host, script, root=True).splitlines()):
        at = words.index(word) if word in words else 0
        if at and words[at + 1].endswith(f"/runs/{run}/hosts/{host}"):
            results[int(words[0])] = Path(words[at - 1]).name
    return results


def minder_of(operator: Tfdeploy, host: str, run: str) -> tuple[int, str] | None:
    return next(iter(processes_of(operator, host, run, "minder").items()), None)


def kill_minder(operator: Tfdeploy, host: str, run: str) -> str:
    """Kill the minder and return the digest of its agent."""
    pid, agent = wait_for(
        lambda: minder_of(operator, host, run), 10, f"a minder of {run} on {host}"
    )
    on_host(operator.lab, host, f"kill -9 {pid}", root=True)
    return agent


def test_a_run_of_the_last_version_is_listed_followed_fetched_and_stopped_while_its_minders_die(
    old: Tfdeploy, new: Tfdeploy
) -> None:
    run = launch(old, new, "updated", "--steps=100000", "--save", keep=["checkpoints"])
    (row,) = (row for row in new.json("runs", "--all")["runs"] if row["run"] == run)
    assert (row["live"], row["state"], row["tasks"]) == (True, "running", 3)
    assert {task: row["host"] for task, row in rows_of(new, run).items()} == TASKS
    following, lines = follow(new, "logs", "-f", run)
    watching, _ = follow(new, "status", "--watch", run)
    wait_for(lambda: "worker:1@n3 | step 5 " in lines(), 30, "its lines are followed")

    before = kill_minder(new, "n2", run)
    again = wait_for(lambda: minder_of(new, "n2", run), 10, "its supervisor starts a minder again")
    assert again[1] == before, "what a supervisor starts is its own version's"
    seen = lines().count("worker:0@n2 | step ")
    wait_for(lambda: lines().count("worker:0@n2 | step ") > seen + 20, 30, "its lines go on")
    rows = rows_of(new, run)
    assert {(row["state"], row["attempt"], row["restarts"]) for row in rows.values()} == {
        ("running", 1, 0)
    }

    on_host(new.lab, "n3", f"kill -9 {rows['worker:1']['pid']}", root=True)
    wait_for(lambda: rows_of(new, run)["worker:1"]["attempt"] == 2, 30, "worker:1 starts again")
    wait_for(lambda: rows_of(new, run)["worker:1"]["state"] == "running", 30, "worker:1 runs")
    assert set(processes_of(new, "n3", run, "supervise").values()) == {before}

    new.run("fetch", run, "--to", str(new.home / "fetched"), exit_code=0)
    (saved,) = (new.home / "fetched").rglob("checkpoints/step")
    assert int(saved.read_text()) > 5
    write_job(new, "updated", "quick.py", "--steps=10")
    refused = new.run("launch", "--detach", "--name", "updated-2", exit_code=3)
    assert run in refused.stderr

    kill_minder(new, "n3", run)
    new.run("stop", run, exit_code=0)
    assert (following.wait(timeout=120), watching.wait(timeout=60)) == (0, 0)
    assert new.state(run) == old.state(run) == "stopped"
    assert_nothing_left(new, run, "updated")


def test_a_host_of_a_run_of_the_last_version_reboots_and_its_part_goes_on_under_this_version(
    old: Tfdeploy, new: Tfdeploy
) -> None:
    run = launch(old, new, "reborn", "--steps=60", "--gate=30")
    agents = {host: minder_of(new, host, run) for host in TASKS.values()}
    assert all(agents.values()) and len({agent for _, agent in filter(None, agents.values())}) == 1
    reboot(new.lab, "n3")
    row = rows_of(new, run)["worker:1"]
    assert (row["state"], row["outcome"], row["reason"]) == ("lost", "lost", "host rebooted")
    following, lines = follow(new, "logs", "-f", run)
    wait_for(lambda: rows_of(new, run)["worker:1"]["attempt"] == 2, 60, "worker:1 starts again")
    awaited = wait_for(lambda: minder_of(new, "n3", run), 10, "a minder on n3")
    assert agents["n3"] is not None and awaited[1] != agents["n3"][1], (
        "run.resume is this version's, and so is its minder"
    )
    for host in ("n1", "n2"):
        assert minder_of(new, host, run) == agents[host], "the others are as they were"
    assert {task: row["attempt"] for task, row in rows_of(old, run).items()} == {
        "ps:0": 1,
        "worker:0": 1,
        "worker:1": 2,
    }
    open_gate(new, run, "reborn")
    assert following.wait(timeout=120) == 0
    assert (
        lines().count("worker:1@n3 | starting at step 0") == 2
        and "worker:1@n3 | done at step 60" in lines()
    )
    new.wait_until("succeeded", run)
    outcomes = {task: row["outcome"] for task, row in rows_of(new, run).items()}
    assert outcomes == {"ps:0": "stopped", "worker:0": "succeeded", "worker:1": "succeeded"}
    assert_nothing_left(new, run, "reborn")


@pytest.mark.long
def test_minders_of_both_versions_start_a_gang_again_together(old: Tfdeploy, new: Tfdeploy) -> None:
    run = launch(old, new, "both", "--steps=100000", mode="mirrored")
    reboot(new.lab, "n3")
    following, _ = follow(new, "status", "--watch", run)
    wait_for(
        lambda: {row["attempt"] for row in rows_of(new, run).values()} == {2},
        60,
        "the gang starts again",
    )
    wait_for(
        lambda: {row["state"] for row in rows_of(new, run).values()} == {"running"},
        30,
        "all tasks run",
    )
    agents = {
        agent for _, agent in filter(None, (minder_of(new, host, run) for host in ("n2", "n3")))
    }
    assert len(agents) == 2, "one of each version"
    new.run("stop", run, exit_code=0)
    assert following.wait(timeout=120) == 0
    assert new.state(run) == old.state(run) == "stopped"
    assert_nothing_left(new, run, "both")
