"""Test that this version lists, follows, reads and stops a run that the last released version of
tfdeploy launched. That run has the older version's agent and minders (the processes that watch a
run on its hosts).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.jobs import write_job
from support.lab.last_version import install_last_version
from support.lab.remains import NO_PORTS, assert_nothing_left
from support.waiting import wait_for
from tfdeploy.lab import Lab


@pytest.fixture
def old(loopback_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy], tmp_path: Path) -> Tfdeploy:
    """Return an operator who uses the last released version."""
    operator = tfdeploy(loopback_lab)
    operator.env["PYTHONPATH"] = str(install_last_version(tmp_path / "last"))
    return operator


@pytest.mark.fault("54 a run of an older version, found on its hosts by a newer one")
def test_a_run_of_an_older_version_is_listed_read_and_stopped(
    old: Tfdeploy, loopback_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    new = tfdeploy(loopback_lab)
    write_job(old, "older", "quick.py", "--steps=100000")
    old.run("launch", "--detach", "--name", "older-1", exit_code=0)
    (row,) = (row for row in new.json("runs", "--all")["runs"] if row["run"] == "older-1")
    assert (row["live"], row["state"], row["tasks"]) == (True, "running", 3)
    rows = {row["task"]: row for row in new.json("status", "older-1")["tasks"]}
    assert {row["state"] for row in rows.values()} == {"running"} and rows["worker:1"][
        "restarts"
    ] == 0
    wait_for(
        lambda: "worker:0@n2 | step 3 " in new.run("logs", "older-1", exit_code=0).stdout,
        30,
        "its lines are read",
    )
    with (new.home / "followed").open("w") as out:
        following = new.start("logs", "-f", "older-1", stdout=out)
    wait_for(
        lambda: "worker:1@n3 | step 5 " in (new.home / "followed").read_text(),
        30,
        "its lines are followed",
    )
    refused = new_launch(new)
    assert refused.returncode == 3 and "older-1" in refused.stderr
    new.run("stop", "older-1", exit_code=0)
    assert following.wait(timeout=120) == 0
    assert new.state("older-1") == old.state("older-1") == "stopped"
    assert_nothing_left(new, "older-1", "older", ports=NO_PORTS)


def new_launch(new: Tfdeploy) -> subprocess.CompletedProcess[str]:
    write_job(new, "older", "quick.py", "--steps=10")
    return new.run("launch", "--detach", "--name", "newer-1")
