"""Test ports that another program uses before or during a launch, and a range of ports that are all
in use.

The plan skips such ports, or the error names them. After the run, all its ports are free.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from support.faults.bystander import LISTEN, bystander
from support.faults.lines import variations
from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.event_pipe import EventPipe
from support.lab.jobs import narrow_inventory, write_job
from support.lab.remains import assert_nothing_left
from tfdeploy.lab import Lab
from tfdeploy.operations.launch import TRIES

pytestmark = pytest.mark.isolated


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


def list_port_owners(pipe: EventPipe, host: str) -> list[set[int]]:
    """Return, for each plan that the launch made, the ports of the tasks on this host and the port
    of its minder (the process that looks after the run on the host)."""
    results = []
    for event in pipe.events:
        if event["kind"] == "plan":
            own = next(each for each in event["data"]["hosts"] if each["host"] == host)
            tasks = {int(task["port"]) for task in event["data"]["tasks"] if task["host"] == host}
            results.append(tasks | {int(own["mesh_port"])})
    return results


@pytest.mark.fault("27 a port taken before the launch")
def test_a_taken_port_is_passed_over_and_named(operator: Tfdeploy) -> None:
    write_job(operator, "taken", "quick.py", "--steps=1")
    with bystander(operator.lab, "n2", LISTEN, "2222") as stranger:
        done = operator.run("launch", "--wait", "--name", "taken-1", exit_code=0)
        rows = operator.json("status", "taken-1")["tasks"]
        assert stranger.poll() is None
    assert "n2" in done.stderr and "2222 by pid" in done.stderr, done.stderr
    assert not any(row["host"] == "n2" and row["address"].endswith(":2222") for row in rows)


@pytest.mark.fault("27 a port taken between choice and start")
@pytest.mark.parametrize("which", variations(["task", "mesh"]))
def test_a_port_taken_after_the_probe_is_planned_anew(
    operator: Tfdeploy, pipe: EventPipe, which: str
) -> None:
    write_job(operator, "raced", "quick.py", "--steps=1")
    run = f"raced-{which}"
    launching = operator.start("launch", "--wait", "--name", run, *pipe.words)
    pipe.hold_at("step", step="prepare", state="begin")
    first = list_port_owners(pipe, "n3")[0]
    port = min(first) if which == "task" else max(first)
    with bystander(operator.lab, "n3", LISTEN, str(port)):
        pipe.go_on()
        code, output = wait_for_end(launching)
    assert code == 0, output
    assert "probing and planning again" in output and str(port) in output, output
    assert port not in list_port_owners(pipe, "n3")[-1]
    assert_nothing_left(operator, run, "raced")


@pytest.mark.long
@pytest.mark.fault("27 a port taken again and again")
def test_a_port_taken_again_and_again_is_refused(operator: Tfdeploy, pipe: EventPipe) -> None:
    write_job(operator, "unlucky", "quick.py", "--steps=1")
    launching = operator.start("launch", "--name", "unlucky-1", *pipe.words)
    with ExitStack() as strangers:
        for _ in range(TRIES):
            pipe.hold_at("step", step="prepare", state="begin")
            port = min(list_port_owners(pipe, "n3")[-1])
            strangers.enter_context(bystander(operator.lab, "n3", LISTEN, str(port)))
        pipe.go_on()
        code, output = wait_for_end(launching)
    assert code == 3 and "n3" in output and str(port) in output.partition("error:")[2], output
    assert_nothing_left(operator, "unlucky-1", "unlucky")


@pytest.mark.fault("27 a fixed port taken, its owner")
@pytest.mark.fault("5 more tasks than ports")
def test_a_range_with_too_few_ports_is_refused_with_their_owner(operator: Tfdeploy) -> None:
    write_job(operator, "narrow", "quick.py", "--steps=1")
    narrow_inventory(operator, ports="2222-2223")
    with bystander(operator.lab, "n2", LISTEN, "2223"):
        stderr = operator.run("launch", "--name", "narrow-1", exit_code=3).stderr
    for word in ("n2", "2222-2223", "2223 by pid", "python3", "ports:"):
        assert word in stderr, stderr
    assert_nothing_left(operator, "narrow-1", "narrow")


@pytest.mark.fault("53 the ports are free for the next run at once")
def test_a_range_of_just_enough_ports_does_for_one_run_after_another(operator: Tfdeploy) -> None:
    """The next run must get the port of the mesh (the connections between the hosts of a run), even
    if connections at this port are still in TIME_WAIT."""
    write_job(operator, "enough", "quick.py", "--steps=1")
    narrow_inventory(operator, ports="2230-2231")
    for number in (1, 2):
        operator.run("launch", "--wait", "--name", f"enough-{number}", exit_code=0)
        assert_nothing_left(operator, f"enough-{number}", "enough", within_s=10)
