"""Test restarts while no client is connected. The cases are a simulated cluster, tasks of real
TensorFlow that restart together, and a coordinator with its ps.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Collection
from typing import Any

import pytest

from support.lab.commandline import REPOSITORY, Tfdeploy, wait_for_end
from support.lab.event_pipe import EventPipe
from support.lab.glance import Glance
from support.lab.host_commands import host_command
from support.lab.jobs import open_gate, write_job
from support.lab.remains import assert_nothing_left
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
TRAINED_S = 240.0


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


def rows_of(operator: Tfdeploy, run: str) -> dict[str, dict[str, Any]]:
    return {row["task"]: row for row in operator.json("status", run)["tasks"]}


def kill(operator: Tfdeploy, *rows: dict[str, Any]) -> None:
    """Kill the processes of these tasks on their hosts, without tfdeploy, as the kernel of a host
    may do.
    """
    for row in rows:
        subprocess.run(
            host_command(operator.lab, row["host"], ["kill", "-KILL", str(row["pid"])]),
            check=True,
            timeout=30,
        )


def read_log(operator: Tfdeploy, run: str, task: str) -> str:
    return operator.run("logs", run, "--task", task, "--output", "raw", exit_code=0).stdout


def wait_again(
    operator: Tfdeploy, run: str, attempt: int, tasks: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Wait until each of these tasks runs its attempt number `attempt`. Return the rows of all
    tasks."""
    glance = Glance(operator.lab, run)

    def again() -> dict[str, dict[str, Any]] | None:
        rows = rows_of(operator, run) if glance() else {}
        there = [(rows[task]["attempt"], rows[task]["state"]) for task in tasks if rows]
        return rows if there and set(there) == {(attempt, "running")} else None

    awaited = wait_for(again, 60.0, f"attempt {attempt} of {', '.join(tasks)} runs")
    assert awaited is not None
    return awaited


@pytest.mark.fault("36 a worker and a ps are killed, async")
def test_worker_and_ps_start_again_on_their_ports_and_training_goes_on(operator: Tfdeploy) -> None:
    write_job(
        operator,
        "again",
        "quick.py",
        "--steps=60",
        "--gate=40",
        "--save",
        keep=["checkpoints"],
        restart={"max": 3, "backoff": ["100ms", "1s"]},
    )
    run = operator.run("launch", "--detach", exit_code=0).stdout.strip()
    rows = rows_of(operator, run)
    before = {task: rows[task] for task in ("worker:0", "worker:1", "ps:0")}
    wait_for(lambda: "step 5 " in read_log(operator, run, "worker:0"), 30, "the first steps")
    kill(operator, *before.values())
    rows = wait_again(operator, run, 2, before)
    for task, row in before.items():
        assert (rows[task]["address"], rows[task]["reason"]) == (
            row["address"],
            "started again: killed by signal 9",
        )
    open_gate(operator, run, "again")
    operator.wait_until("succeeded", run)
    chief = read_log(operator, run, "worker:0")
    resumed = [int(step) for step in re.findall(r"^starting at step (\d+)", chief, re.MULTILINE)]
    assert resumed[0] == 0 and resumed[1] >= 4
    assert rows_of(operator, run)["worker:0"]["restarts"] == 1
    assert_nothing_left(operator, run, "again")


@pytest.mark.fault("37 a crash loop gives up after its budget")
def test_a_crash_loop_gives_up_and_names_its_first_death(
    operator: Tfdeploy, pipe: EventPipe
) -> None:
    write_job(
        operator,
        "loop",
        "quick.py",
        "--gate=1",
        "--failat=2",
        restart={"max": 2, "backoff": ["50ms", "1s"]},
    )
    run = "loop-1"
    launching = operator.start("launch", "--wait", "--name", run, *pipe.words)
    # A task that fails before the commit is not started again.
    pipe.hold_at("step", step="commit", state="done")
    pipe.go_on()
    open_gate(operator, run, "loop")
    code, output = wait_for_end(launching)
    assert code == 1 and "gave up" in output, output
    rows = operator.json("status", run)["tasks"]
    given_up = [row for row in rows if row["outcome"] == "gave_up"]
    assert given_up and given_up[0]["attempt"] == 3
    assert "after 2 restarts" in given_up[0]["reason"] and "exit code 3" in given_up[0]["reason"]
    assert_nothing_left(operator, run, "loop")


def test_a_mistake_at_the_programs_start_is_named_at_once_and_not_met_a_third_time(
    operator: Tfdeploy,
) -> None:
    """If the job does not set `restart.max`, a run ends when the same exception occurs twice at the
    same line before the first step.
    """
    flags = ("--only=worker:1", "--gate", "--after=1", "--listen", "--raises")
    write_job(operator, "mistake", "crash.py", *flags, restart={"backoff": ["6s", "6s"]})
    run = operator.run("launch", "--detach", exit_code=0).stdout.strip()
    open_gate(operator, run, "mistake", rows_of(operator, run)["worker:1"]["host"])
    line = (operator.cwd / "crash.py").read_text().split("\n").index('        {}["shard"]') + 1
    error = f"KeyError: 'shard' (crash.py:{line})"

    def reason() -> str | None:
        text: str = rows_of(operator, run)["worker:1"]["reason"] or ""
        return text if " again: " in text else None

    assert wait_for(reason, 30, "the task starts again") in (
        f"starts again: {error}",
        f"started again: {error}",
    )
    operator.wait_until("failed", run)
    rows = rows_of(operator, run)
    assert {task: row["attempt"] for task, row in rows.items()} == {
        "ps:0": 1,
        "worker:0": 1,
        "worker:1": 2,
    }
    assert (
        rows["worker:1"]["reason"]
        == f"attempts 1 and 2 failed with the same error before their first step: {error}"
    )
    assert_nothing_left(operator, run, "mistake")


@pytest.mark.long
@pytest.mark.tensorflow
@pytest.mark.fault("36 a worker of a mirrored gang is killed, real TensorFlow")
def test_a_mirrored_gang_goes_on_from_the_chiefs_backup_on_every_host(
    isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(isolated_lab)
    folder = operator.home / "mirrored_keras"
    shutil.copytree(
        REPOSITORY / "examples" / "mirrored_keras",
        folder,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    operator.cwd = folder
    run = operator.run(
        "launch", "--detach", "--", "python", "train.py", "--epochs=8", exit_code=0
    ).stdout.strip()
    wait_for(
        lambda: "Epoch 4/" in read_log(operator, run, "worker:0"), TRAINED_S, "the fourth epoch"
    )
    kill(operator, rows_of(operator, run)["worker:1"])
    operator.wait_until("succeeded", run, timeout_s=TRAINED_S)
    for task in ("worker:0", "worker:1", "worker:2"):
        lines = read_log(operator, run, task)
        assert "starting at epoch 0" in lines
        went_on = re.findall(r"going on from epoch (\d+)", lines)
        assert len(went_on) == 1 and int(went_on[0]) >= 3, lines
    assert {row["attempt"] for row in rows_of(operator, run).values()} == {2}
    assert_nothing_left(operator, run, "mirrored-keras")


@pytest.mark.soak
@pytest.mark.tensorflow
@pytest.mark.fault("36 a ps of a coordinator is killed, real TensorFlow")
def test_a_ps_takes_the_coordinator_with_it_and_leaves_the_workers(operator: Tfdeploy) -> None:
    folder = operator.home / "coordinator"
    shutil.copytree(
        REPOSITORY / "examples" / "coordinator",
        folder,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    operator.cwd = folder
    command = ("--ps", "1", "--workers", "2", "--", "python", "train.py", "--steps=2000")
    run = operator.run("launch", "--detach", *command, exit_code=0).stdout.strip()
    wait_for(
        lambda: re.search(r"^step \d+ loss", read_log(operator, run, "chief:0"), re.MULTILINE),
        TRAINED_S,
        "the first steps",
    )
    kill(operator, rows_of(operator, run)["ps:0"])
    operator.wait_until("succeeded", run, timeout_s=TRAINED_S)
    assert re.search(
        r"going on from step [1-9]\d* of the last checkpoint", read_log(operator, run, "chief:0")
    )
    attempts = {task: row["attempt"] for task, row in rows_of(operator, run).items()}
    assert (
        attempts["ps:0"] == 2
        and attempts["worker:0"] == attempts["worker:1"] == 1
        and attempts["chief:0"] >= 2
    )
    assert_nothing_left(operator, run, "coordinator")
