"""Hosts that the control machine reaches and that do not reach each other: found before anything of the program starts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import changed_host, on_host
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
FILTER = """nft add table inet cut
nft add chain inet cut cut '{{ type filter hook {hook} priority 0; }}'
nft add rule inet cut cut {towards} tcp dport {ports} {verdict}"""
UNDO = "nft delete table inet cut"


@pytest.fixture
def operator(isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(isolated_lab)


def towards(lab: Lab, host: str, *, verdict: str, ports: str = "2222-2299") -> str:
    """The script that keeps a host from reaching the run's ports of that one."""
    address = next(str(row["address"]) for row in lab.status() if row["host"] == host)
    return FILTER.format(hook="output", towards=f"ip daddr {address}", ports=ports, verdict=verdict)


def refused(operator: Tfdeploy, job: str) -> str:
    """The error of a launch after which nothing is left."""
    run = f"{job}-1"
    said = operator.run("launch", "--name", run, exit_code=3).stderr
    assert "Traceback" not in said
    assert_nothing_left(operator, run, job)
    for host in operator.lab.hosts:
        assert on_host(operator.lab, host, f"ls ~/tfdeploy/{job}/runs 2>/dev/null || true") == ""
    return said.partition("error:")[2]


@pytest.mark.fault("32 hosts that do not reach each other")
@pytest.mark.parametrize(
    ("verdict", "why"), [("drop", "no answer"), pytest.param("reject", "nobody listens", marks=pytest.mark.long)]
)
def test_the_pair_and_the_port_are_named(operator: Tfdeploy, verdict: str, why: str) -> None:
    write_job(operator, "pair", "quick.py")
    with changed_host(operator.lab, "n2", towards(operator.lab, "n3", verdict=verdict), UNDO):
        error = refused(operator, "pair")
    assert f"n2 does not reach n3: {why} at " in error, error
    assert "2222-2299" in error and "advertise" in error, error
    assert "n4" not in error and "n3 does not reach" not in error, error


@pytest.mark.long
@pytest.mark.fault("32 one host that no other reaches")
def test_a_host_that_no_other_reaches_is_one_line(operator: Tfdeploy) -> None:
    write_job(operator, "alone", "quick.py")
    filtered = FILTER.format(hook="input", towards="", ports="2222-2299", verdict="drop")
    with changed_host(operator.lab, "n4", filtered, UNDO):
        error = refused(operator, "alone")
    assert "no other host reaches n4: no answer at " in error and "worker:2" in error, error
    assert "does not reach" not in error, error


@pytest.mark.fault("32 a task's port that is filtered, the mesh's not")
def test_a_task_whose_port_is_filtered_is_named(operator: Tfdeploy) -> None:
    write_job(operator, "one-port", "quick.py")
    planned = operator.json("launch", "--dry-run")
    port = next(task["address"] for task in planned["tasks"] if task["task"] == "ps:0").rpartition(":")[2]
    with changed_host(operator.lab, "n3", towards(operator.lab, "n1", verdict="drop", ports=port), UNDO):
        error = refused(operator, "one-port")
    assert "n3 does not reach n1: no answer at " in error and f":{port} (ps:0)" in error, error


@pytest.mark.fault("58 a port of the run that others than its hosts reach")
def test_ports_that_are_open_to_others_are_said_and_a_firewall_silences_it(operator: Tfdeploy) -> None:
    write_job(operator, "open", "quick.py", "--steps=1", protect="none")
    told = "no host of the run, reaches its ports on n[1-4]"
    assert told in operator.run("launch", "--detach", exit_code=0).stderr
    addresses = ", ".join(str(row["address"]) for row in operator.lab.status())
    closed = FILTER.format(hook="input", towards=f"ip saddr != {{ {addresses} }}", ports="2222-2299", verdict="drop")
    with ExitStack() as stack:
        for host in operator.lab.hosts:
            stack.enter_context(changed_host(operator.lab, host, closed, UNDO))
        said = operator.run("launch", "--detach", exit_code=0).stderr
    assert "reaches its ports" not in said and "running" in said, said
