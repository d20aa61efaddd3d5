"""Test that tfdeploy finds and ends the live processes of a run, even if the run's folder was
removed or its helper processes are stopped.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from support.lab.run_files import host_state, task_status
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


def launch(operator: Tfdeploy, run: str) -> None:
    operator.run("launch", "--detach", "--name", run, exit_code=0)


@pytest.mark.fault("56 the run folder is removed under its task")
def test_a_removed_folder_hides_no_task(operator: Tfdeploy) -> None:
    write_job(operator, "hidden", "quick.py", "--steps=100000", "--pause=0.1")
    launch(operator, "hidden-1")
    assert operator.marked("n2", "hidden-1")
    # The minder (the process that looks after the run) may write a file while rm removes the
    # folder. So rm is repeated.
    folder = "~/tfdeploy/hidden/runs/hidden-1"
    on_host(operator.lab, "n2", f"for _ in 1 2 3 4 5; do rm -rf {folder} && break; done")
    refused = operator.run("launch", "--detach", "--name", "hidden-2")
    assert (
        refused.returncode != 0
        and "hidden-1" in refused.stderr
        and "tfdeploy stop hidden-1" in refused.stderr
    )
    assert (
        "no process of run hidden-1 is alive"
        in operator.run("stop", "hidden-1", "--now", exit_code=0).stderr
    )
    assert not operator.marked("n2", "hidden-1")
    assert_nothing_left(operator, "hidden-1", "hidden")
    launch(operator, "hidden-2")
    operator.run("stop", "hidden-2", "--now", exit_code=0)


@pytest.mark.fault("51 a stop meets a minder and a supervisor that stand still")
def test_helpers_that_stand_still_keep_no_stop_and_no_launch(operator: Tfdeploy) -> None:
    write_job(operator, "still", "quick.py", "--steps=100000", "--pause=0.1")
    launch(operator, "still-1")
    minder = host_state(operator, "still-1", "still", "n2")["minder_pid"]
    status = task_status(operator, "still-1", "still", "n3", "worker:1")
    on_host(operator.lab, "n2", f"kill -STOP {minder}")
    on_host(operator.lab, "n3", f"kill -STOP {status['supervisor_pid']}")
    operator.run("stop", "still-1", "--now", exit_code=0)
    assert operator.state("still-1") == "stopped"
    assert_nothing_left(operator, "still-1", "still")
    launch(operator, "still-2")
    operator.run("stop", "still-2", "--now", exit_code=0)
