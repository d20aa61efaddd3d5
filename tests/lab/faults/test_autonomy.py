"""Test that a run needs no client: the client may be killed or cut off, and any later client finds
the complete state of the run on the hosts.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.event_pipe import EventPipe
from support.lab.jobs import open_gate, write_job
from support.lab.remains import assert_nothing_left
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


@pytest.fixture
def newcomer(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy], operator: Tfdeploy) -> Tfdeploy:
    """Return another operator with another home folder, without state and without a job file. This
    operator has only the inventory.
    """
    return tfdeploy(few_hosts)


def kill(operator: Tfdeploy, *args: str, pipe: EventPipe) -> None:
    """Run tfdeploy ARGS until a worker has printed its tenth line. Then kill tfdeploy and its child
    processes.
    """
    watching = operator.start(*args, *pipe.words)
    for _ in range(10):
        pipe.hold_at("line", task="worker:0")
    os.killpg(watching.pid, signal.SIGKILL)
    watching.wait()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[EventPipe]:
    made = EventPipe(tmp_path / "events")
    yield made
    made.close()


def steps_of(operator: Tfdeploy, run: str, task: str) -> list[int]:
    stdout = operator.run("logs", run, "--task", task, "--output", "raw", exit_code=0).stdout
    return [int(step) for step in re.findall(r"^step (\d+)", stdout, re.MULTILINE)]


@pytest.mark.fault("35 tfdeploy killed during the run")
def test_a_run_whose_tfdeploy_was_killed_ends_well_and_a_newcomer_sees_all_of_it(
    operator: Tfdeploy, newcomer: Tfdeploy, pipe: EventPipe
) -> None:
    write_job(operator, "orphan", "quick.py", "--steps=150", "--gate=30", finish={"grace": "5s"})
    kill(operator, "launch", "--wait", "--name", "orphan-1", pipe=pipe)
    answer = newcomer.json("status", "orphan-1")
    assert (answer["run"], answer["job"], answer["mode"], answer["state"]) == (
        "orphan-1",
        "orphan",
        "async",
        "running",
    )
    assert {row["task"]: row["state"] for row in answer["tasks"]} == dict.fromkeys(
        ("ps:0", "worker:0", "worker:1"), "running"
    )
    assert next(row for row in newcomer.json("runs", "--all")["runs"] if row["run"] == "orphan-1")[
        "live"
    ]
    open_gate(newcomer, "orphan-1", "orphan")
    newcomer.wait_until("succeeded", "orphan-1", timeout_s=60)
    assert_nothing_left(newcomer, "orphan-1", "orphan")
    for task in ("worker:0", "worker:1"):
        assert steps_of(newcomer, "orphan-1", task) == list(range(1, 151))
    rows = {row["task"]: row for row in newcomer.json("status", "orphan-1")["tasks"]}
    outcomes = {task: row["outcome"] for task, row in rows.items()}
    assert outcomes == {"ps:0": "stopped", "worker:0": "succeeded", "worker:1": "succeeded"}
    assert (rows["worker:0"]["exit_code"], rows["ps:0"]["reason"]) == (
        0,
        "the deciding task succeeded",
    )


@pytest.mark.fault("35 another machine takes over")
def test_a_newcomer_stops_a_run_whose_tfdeploy_was_killed(
    operator: Tfdeploy, newcomer: Tfdeploy, pipe: EventPipe
) -> None:
    write_job(operator, "taken-over", "quick.py", "--steps=100000")
    kill(operator, "launch", "--wait", "--name", "taken-over-1", pipe=pipe)
    newcomer.run("stop", "taken-over-1", exit_code=0)
    assert_nothing_left(newcomer, "taken-over-1", "taken-over")
    assert newcomer.state("taken-over-1") == operator.state("taken-over-1") == "stopped"


def test_a_worker_that_dies_unwatched_fails_the_run_and_is_named(
    operator: Tfdeploy, newcomer: Tfdeploy
) -> None:
    write_job(operator, "dies", "crash.py", "--gate", "--only=worker:1", "--listen", "--code=9")
    operator.run("launch", "--detach", "--name", "dies-1", exit_code=0)
    open_gate(operator, "dies-1", "dies", "n3")
    newcomer.wait_until("failed", "dies-1", timeout_s=30)
    assert_nothing_left(newcomer, "dies-1", "dies")
    rows = {row["task"]: row for row in newcomer.json("status", "dies-1")["tasks"]}
    assert (rows["worker:1"]["outcome"], rows["worker:1"]["exit_code"]) == ("failed", 9)
    for task in ("ps:0", "worker:0"):
        assert rows[task]["outcome"] == "stopped"
        assert rows[task]["reason"] == "worker:1 on n3 failed with exit code 9"
    shown = newcomer.run("status", "dies-1", exit_code=0).stdout
    assert shown.count("worker:1 on n3 failed with exit code 9") == 1, shown
    last = "\n  | worker:1: something is wrong, giving up\n"
    assert last in shown, shown
    operator.run("fetch", "dies-1", "--logs", exit_code=0)
    operator.lab.cut("n3")
    try:
        shown = operator.run("status", "dies-1", exit_code=0).stdout
    finally:
        operator.lab.heal("n3")
    assert "as of the last fetch" in shown and last in shown, shown


@pytest.mark.fault("35 a host cut off while its logs are followed")
def test_a_host_that_is_cut_off_for_a_while_costs_no_line(operator: Tfdeploy) -> None:
    """The run continues, and a client that follows its logs receives every line exactly once.

    The gate opens only after the cut, so that each host prints most of its lines during the cut.
    Because of the grace, the run waits for n3 even if worker:0 ends during the cut.
    """
    flags = ("--steps=100", "--gate=5", "--pause=0.1")
    write_job(operator, "cut", "quick.py", *flags, finish={"grace": "60s"})
    operator.run("launch", "--detach", "--name", "cut-1", exit_code=0)
    followed = operator.home / "followed"
    with followed.open("w") as out:
        following = operator.start("logs", "-f", "--output", "json", "cut-1", stdout=out)
        wait_for(lambda: followed.read_text().count("worker:1") > 5, 20, "lines are followed")
        operator.lab.cut("n3")
        others = followed.read_text().count("worker:0")
        open_gate(operator, "cut-1", "cut", "n2", "n3")
        wait_for(
            lambda: followed.read_text().count("worker:0") > others + 30,
            30,
            "the others are still followed",
        )
        operator.lab.heal("n3")
        assert following.wait(timeout=120) == 0
    lines = [json.loads(line) for line in followed.read_text().splitlines() if line.startswith("{")]
    for task in ("worker:0", "worker:1"):
        steps = [
            int(row["line"].split()[1])
            for row in lines
            if row["task"] == task and row["line"].startswith("step ")
        ]
        assert steps == list(range(1, 101)), (task, steps[:5], steps[-5:])
    operator.wait_until("succeeded", "cut-1", timeout_s=60)
    assert_nothing_left(operator, "cut-1", "cut", within_s=20)
