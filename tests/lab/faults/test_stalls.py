"""Test tasks that stall on real hosts. `status` reports a stalled task, with the reason, until the
task continues.

It reports no healthy task as stalled.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.glance import Glance
from support.lab.host_commands import host_command
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
ALONE = "no output, no CPU use, no traffic, and no visible problem in other tasks"
SEEN_S = 60.0


@pytest.fixture
def operator(isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(isolated_lab)


def ills(operator: Tfdeploy, run: str) -> dict[str, str]:
    """Return {task: "HEALTH: REASON"} of all unhealthy tasks.

    An example is {"worker:1": "stalled: why"}.
    """
    rows = operator.json("status", run)["tasks"]
    return {
        row["task"]: f"{row['health']}: {(row['reason'] or '').partition(' (since')[0]}"
        for row in rows
        if row["health"]
    }


def wait_ills(operator: Tfdeploy, run: str, expected: dict[str, str]) -> None:
    last: list[Any] = [None]
    glance = Glance(operator.lab, run)

    def same() -> bool:
        last[0] = ills(operator, run) if glance() else last[0]
        return bool(last[0] == expected)

    try:
        wait_for(same, SEEN_S, f"of {run}: {expected}")
    except AssertionError as error:
        raise AssertionError(f"{error}; last seen: {last[0]}") from error


def signal_to(operator: Tfdeploy, run: str, task: str, name: str) -> int:
    row = next(row for row in operator.json("status", run)["tasks"] if row["task"] == task)
    subprocess.run(
        host_command(operator.lab, row["host"], ["kill", f"-{name}", str(row["pid"])]),
        check=True,
        timeout=30,
    )
    return int(row["pid"])


@contextmanager
def running(
    operator: Tfdeploy, name: str, *flags: str, after: str = "4s", **keys: Any
) -> Iterator[str]:
    write_job(
        operator,
        name,
        "standing.py",
        *flags,
        stall={"after": after, **keys.pop("stall", {})},
        **keys,
    )
    run = operator.run("launch", "--detach", exit_code=0).stdout.strip()
    yield run
    operator.run("stop", "--now", run, exit_code=0)
    assert_nothing_left(operator, run, name)


@pytest.mark.fault("39 a frozen task, and who waits for it")
def test_a_frozen_worker_is_named_by_all_that_wait_for_it(operator: Tfdeploy) -> None:
    with running(operator, "frozen", mode="sync") as run:
        pid = signal_to(operator, run, "worker:1", "STOP")
        expected_text = (
            f"frozen: its process {pid} is stopped; on n3 `kill -CONT {pid}` continues it"
        )
        waits = f"stalled: waits for worker:1 on n3: {expected_text}"
        wait_ills(
            operator,
            run,
            {"worker:0": waits, "worker:1": f"stalled: {expected_text}", "worker:2": waits},
        )
        shown = operator.run("status", run, exit_code=0).stdout
        assert "stalled" in shown and "kill -CONT" in shown.replace("\n", " ")
        assert operator.state(run) == "running"
        signal_to(operator, run, "worker:1", "CONT")
        wait_ills(operator, run, {})


@pytest.mark.long
@pytest.mark.fault("39 a sync peer that is gone")
def test_a_peer_that_has_left_a_synchronous_run_is_named(operator: Tfdeploy) -> None:
    with running(operator, "left", "--leaves=worker:1", mode="sync") as run:
        ended = "worker:1 on n3: it has ended (succeeded)"
        waits = f"stalled: waits for {ended}; give all workers equally many steps"
        wait_ills(operator, run, {"worker:0": waits, "worker:2": waits})


@pytest.mark.long
@pytest.mark.fault("39 a ps behind a cut")
def test_a_ps_behind_a_cut_is_named_and_forgiven_after_the_heal(operator: Tfdeploy) -> None:
    with running(operator, "cut-ps") as run:
        operator.lab.cut("n1")
        try:
            wait_for(
                lambda: all(
                    f"waits for ps:0 on n1: n1 cannot be reached from {host}"
                    in ills(operator, run).get(task, "")
                    for task, host in (("worker:0", "n2"), ("worker:1", "n3"), ("worker:2", "n4"))
                ),
                SEEN_S,
                "the workers say that ps:0 is cut off",
            )
            assert ills(operator, run)["ps:0"].startswith("unreachable")
        finally:
            operator.lab.heal("n1")
        wait_ills(operator, run, {})


@pytest.mark.long
@pytest.mark.fault("39 a worker that never came")
def test_who_prints_that_it_waits_says_why_there_is_no_answer(operator: Tfdeploy) -> None:
    with running(operator, "never", "--waits=worker:0", "--closed=worker:1") as run:
        port = next(
            row for row in operator.json("status", run)["tasks"] if row["task"] == "worker:1"
        )["address"].rsplit(":")[-1]
        closed = (
            f"stalled: waits for worker:1 on n3: its port {port} is closed: "
            "no process listens there"
        )
        wait_ills(operator, run, {"worker:0": closed, "worker:1": f"stalled: {ALONE}"})


@pytest.mark.fault("39 no alarm for a silent program that computes")
def test_computing_and_talking_in_silence_are_no_stall(operator: Tfdeploy) -> None:
    with running(operator, "silent", "--computes=worker:0", "--sleeps=worker:2") as run:
        # Only worker:2 may count as stalled, although the other workers have been silent for the
        # same time.
        wait_ills(operator, run, {"worker:2": f"stalled: {ALONE}"})
        assert tasks_reported_stalled(operator, run) == {"worker:2"}


@pytest.mark.long
@pytest.mark.fault("39 a frozen task starts again under restart")
def test_under_restart_a_frozen_worker_fails_and_starts_again(operator: Tfdeploy) -> None:
    keys = {
        "stall": {"action": "restart"},
        "restart": {"max": 3, "backoff": ["100ms", "1s"]},
        "stop": {"grace": "2s"},
    }
    with running(operator, "thawed", **keys) as run:
        pid = signal_to(operator, run, "worker:1", "STOP")

        def again() -> bool:
            row = next(
                row for row in operator.json("status", run)["tasks"] if row["task"] == "worker:1"
            )
            return (row["attempt"], row["state"], row["health"]) == (2, "running", None) and row[
                "pid"
            ] != pid

        wait_for(again, SEEN_S, "worker:1 runs again")
        assert {
            row["attempt"]
            for row in operator.json("status", run)["tasks"]
            if row["task"] != "worker:1"
        } == {1}


def tasks_reported_stalled(operator: Tfdeploy, run: str) -> set[str]:
    """Return the tasks that were ever reported as stalled, from the journals of all hosts."""
    names_said = set()
    for host in operator.lab.hosts:
        script = f"cat ~/tfdeploy/*/runs/{run}/hosts/*/journal 2>/dev/null || true"
        lines = subprocess.run(
            host_command(operator.lab, host, ["sh", "-c", script]),
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        names_said |= {
            row["task"]
            for row in map(json.loads, lines.stdout.splitlines())
            if row["what"] == "stalled"
        }
    return names_said


@pytest.mark.soak
@pytest.mark.tensorflow
@pytest.mark.fault("39 no alarm for an import of TensorFlow and a long validation")
def test_a_long_validation_with_real_tensorflow_is_no_stall_and_waiting_for_a_token_is(
    operator: Tfdeploy,
) -> None:
    write_job(
        operator,
        "validates",
        "validating.py",
        "--seconds=1000",
        roles={"worker": {"count": 2}},
        stall={"after": "15s"},
        ready={"timeout": "120s"},
    )
    run = operator.run("launch", "--detach", exit_code=0, timeout_s=180).stdout.strip()
    wait_ills(operator, run, {"worker:1": f"stalled: {ALONE}"})
    row = next(row for row in operator.json("status", run)["tasks"] if row["task"] == "worker:0")

    def has_computed() -> bool:
        command = host_command(operator.lab, row["host"], ["cat", f"/proc/{row['pid']}/stat"])
        stat = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True
        ).stdout
        # The 22 s include the CPU time of importing TensorFlow.
        return int(stat.rpartition(")")[2].split()[11]) > 22 * os.sysconf("SC_CLK_TCK")

    wait_for(has_computed, 300, "it has validated for longer than stall.after")
    assert tasks_reported_stalled(operator, run) == set(ills(operator, run)) == {"worker:1"}
    operator.run("stop", "--now", run, exit_code=0)
    assert_nothing_left(operator, run, "validates")
