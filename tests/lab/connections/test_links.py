"""Test hosts that the control machine reaches but that cannot connect to each other.

The launch fails before any program starts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.filters import UNDO, inwards, towards
from support.lab.hosts import host_changed_by_scripts, on_host
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated


@pytest.fixture
def operator(isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(isolated_lab)


def refused(operator: Tfdeploy, job: str) -> str:
    """Check that the launch fails and that nothing of the run remains. Return the error."""
    run = f"{job}-1"
    stderr = operator.run("launch", "--name", run, exit_code=3).stderr
    assert "Traceback" not in stderr
    assert_nothing_left(operator, run, job)
    for host in operator.lab.hosts:
        assert on_host(operator.lab, host, f"ls ~/tfdeploy/{job}/runs 2>/dev/null || true") == ""
    return stderr.partition("error:")[2]


@pytest.mark.fault("32 hosts that do not reach each other")
@pytest.mark.parametrize(
    ("verdict", "why"),
    [("drop", "no answer"), pytest.param("reject", "nobody listens", marks=pytest.mark.long)],
)
def test_the_pair_and_the_port_are_named(operator: Tfdeploy, verdict: str, why: str) -> None:
    write_job(operator, "pair", "quick.py")
    with host_changed_by_scripts(
        operator.lab, "n2", towards(operator.lab, "n3", verdict=verdict), UNDO
    ):
        error = refused(operator, "pair")
    assert f"n2 does not reach n3: {why} at " in error, error
    assert "2222-2299" in error and "advertise" in error, error
    assert "n4" not in error and "n3 does not reach" not in error, error


@pytest.mark.long
@pytest.mark.fault("32 one host that no other reaches")
def test_a_host_that_no_other_reaches_is_one_line(operator: Tfdeploy) -> None:
    write_job(operator, "alone", "quick.py")
    with host_changed_by_scripts(operator.lab, "n4", inwards(""), UNDO):
        error = refused(operator, "alone")
    assert "no other host reaches n4: no answer at " in error and "worker:2" in error, error
    assert "does not reach" not in error, error


@pytest.mark.fault("32 a task's port that is filtered, the mesh's not")
def test_a_task_whose_port_is_filtered_is_named(operator: Tfdeploy) -> None:
    write_job(operator, "one-port", "quick.py")
    planned = operator.json("launch", "--dry-run")
    port = next(task["address"] for task in planned["tasks"] if task["task"] == "ps:0").rpartition(
        ":"
    )[2]
    with host_changed_by_scripts(
        operator.lab, "n3", towards(operator.lab, "n1", verdict="drop", ports=port), UNDO
    ):
        error = refused(operator, "one-port")
    assert "n3 does not reach n1: no answer at " in error and f":{port} (ps:0)" in error, error


@pytest.mark.fault("58 a port of the run that others than its hosts reach")
def test_ports_that_are_open_to_others_are_said_and_a_firewall_silences_it(
    operator: Tfdeploy,
) -> None:
    write_job(operator, "open", "quick.py", "--steps=1", protect="none")
    expected_text = "no host of the run, but it can connect to ports on n[1-4]"
    assert expected_text in operator.run("launch", "--detach", exit_code=0).stderr
    addresses = ", ".join(str(row["address"]) for row in operator.lab.status())
    closed = inwards(f"ip saddr != {{ {addresses} }}")
    with ExitStack() as stack:
        for host in operator.lab.hosts:
            stack.enter_context(host_changed_by_scripts(operator.lab, host, closed, UNDO))
        stderr = operator.run("launch", "--detach", exit_code=0).stderr
    assert "it can connect to ports" not in stderr and "running" in stderr, stderr
