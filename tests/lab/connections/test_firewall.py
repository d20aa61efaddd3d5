"""Test `protect: firewall` with real nft and an ordinary user who may use nft.

Other users and other machines cannot connect.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from support.agent.firewalled import KNOCK, OTHER
from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.event_pipe import EventPipe
from support.lab.hosts import host_changed_by_scripts, on_host
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from support.stopwatch import DEADLINE_S
from support.waiting import wait_for
from tfdeploy.lab import Lab

# In these tests, nft gets its rights from a file capability. A kernel that ignores setuid bits also
# ignores file capabilities.
pytestmark = [pytest.mark.isolated, pytest.mark.needs("setuid programs")]
MAY = "setcap cap_net_admin+ep $(readlink -f /usr/sbin/nft)"
MAY_NOT = "setcap -r $(readlink -f /usr/sbin/nft)"
WITHIN_S = 20


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Iterator[Tfdeploy]:
    """Return an operator whose user may use nft on every host."""
    with ExitStack() as stack:
        for host in few_hosts.hosts:
            stack.enter_context(host_changed_by_scripts(few_hosts, host, MAY, MAY_NOT))
        yield tfdeploy(few_hosts)


def knock(address: str, port: int, count: int, user: int = 0) -> str:
    """Return a shell command that tries `count` times to connect as a user, and prints how many
    connections it opened."""
    return shlex.join(["python3", "-c", KNOCK, "", address, str(port), str(count), str(user)])


def let_in(operator: Tfdeploy, ends: list[tuple[str, int]], count: int) -> dict[str, int]:
    """Return {client: the number of connections that the client could open}.

    Each client tries `count` times to connect to each address and port in `ends`.
    """
    first = operator.lab.hosts[0]
    stranger = operator.lab.operator_command(
        ["sh", "-c", "; ".join(knock(*end, count) for end in ends)]
    )
    from_elsewhere = sum(map(int, _printed(stranger)))
    others = {
        f"{name} on a host": "; ".join(knock(*end, count, user) for end in ends)
        for name, user in (("another user", OTHER), ("root", 0))
    }
    counts = {
        name: sum(map(int, on_host(operator.lab, first, script, root=True).split()))
        for name, script in others.items()
    }
    return {"another machine": from_elsewhere, **counts}


def _printed(args: list[str]) -> list[str]:
    return subprocess.run(
        args, capture_output=True, text=True, check=True, timeout=DEADLINE_S
    ).stdout.split()


def tables(lab: Lab) -> list[int]:
    return [
        on_host(lab, host, "nft list tables", root=True).count("tfdeploy_") for host in lab.hosts
    ]


def name_of_table(lab: Lab, host: str) -> str:
    return on_host(lab, host, "nft list tables | grep tfdeploy_", root=True)


def ends_of(plan: Any) -> list[tuple[str, int]]:
    """Return the addresses and ports of all tasks and of the mesh (the connections between the
    hosts of the run)."""
    ends = [(host["address"], host["mesh_port"]) for host in plan["hosts"]]
    return ends + [
        (address, int(port))
        for address, _, port in (task["address"].rpartition(":") for task in plan["tasks"])
    ]


def pids(operator: Tfdeploy, host: str, run: str) -> list[str]:
    """Return the pids of the minder (the process that looks after the run on the host), of the
    supervisor (the parent process of a task) and of the program."""
    files = (
        f"cd ~/tfdeploy/closed/runs/{run}/hosts/{host} && cat state.json && echo && cat "
        "tasks/*/status.json"
    )
    state, task = (json.loads(line) for line in on_host(operator.lab, host, files).splitlines())
    return [str(state["minder_pid"]), str(task["supervisor_pid"]), str(task["pid"])]


def address_of(operator: Tfdeploy, host: str) -> str:
    return next(str(row["address"]) for row in operator.lab.status() if row["host"] == host)


GREETED = """
import socket, sys
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
greeted = 0
for _ in range(count):
    try:
        with socket.create_connection((address, port), 30) as one:
            greeted += one.recv(1) == b"x"
    except OSError:
        pass
print(greeted)
"""


def _without_table(operator: Tfdeploy, host: str, task: tuple[str, int]) -> None:
    """Kill the host's nft as root, and keep a new nft from starting, so that the table is gone.

    Check that strangers still cannot connect, and that hosts of the run can.
    """
    command = ["python3", "-c", GREETED, task[0], str(task[1]), "50"]
    on_host(
        operator.lab,
        host,
        "chmod 700 $(readlink -f /usr/sbin/nft); kill -9 $(pgrep -x nft)",
        root=True,
    )
    try:
        wait_for(lambda: tables(operator.lab) == [1, 0, 1], WITHIN_S, "the table is gone")
        assert _printed(operator.lab.operator_command(command)) == ["0"]
        assert on_host(operator.lab, "n1", shlex.join(command)) == "50"
    finally:
        on_host(operator.lab, host, "chmod 755 $(readlink -f /usr/sbin/nft)", root=True)


def _lose_a_supervisor(operator: Tfdeploy, host: str, run: str) -> None:
    """Kill a supervisor, and check that the table stays the same.

    The minder then ends the program, but not the nft that the minder has started.
    """
    before, (_, supervisor, program) = name_of_table(operator.lab, host), pids(operator, host, run)
    on_host(operator.lab, host, f"kill -9 {supervisor}")
    wait_for(
        lambda: pids(operator, host, run)[2] not in (program, "None"),
        WITHIN_S,
        "the task runs again",
    )
    assert name_of_table(operator.lab, host) == before


def plan_of(operator: Tfdeploy, run: str) -> Any:
    return json.loads(
        on_host(operator.lab, operator.lab.hosts[0], f"cat ~/tfdeploy/closed/runs/{run}/plan.json")
    )


@pytest.mark.fault("63 a stranger, another user and root on a host, under a firewall")
@pytest.mark.parametrize("count", [20, pytest.param(600, marks=pytest.mark.long)])
def test_only_the_runs_own_reach_its_ports_while_minders_die(
    operator: Tfdeploy, count: int
) -> None:
    """Three strangers (a process on another machine, another user on a host, and root on a host)
    each try `count` times to connect to each of six ports. They do this three times in the test.

    So if `count` is 600, each stranger makes 600 * 6 * 3 = 10,800 attempts.
    """
    run = f"closed-of-{count}"
    write_job(operator, "closed", "listening.py", protect="auto", restart={"max": 3})
    operator.run("launch", "--detach", "--name", run, exit_code=0)
    assert operator.json("status", run)["protect"]["used"] == "firewall"
    ends = ends_of(plan_of(operator, run))
    none = {"another machine": 0, "another user on a host": 0, "root on a host": 0}
    assert tables(operator.lab) == [1, 1, 1]
    assert let_in(operator, ends, count) == none
    _lose_a_supervisor(operator, "n3", run)
    for host in operator.lab.hosts:
        on_host(
            operator.lab,
            host,
            f"nft flush ruleset; kill -9 {pids(operator, host, run)[0]}",
            root=True,
        )
    assert let_in(operator, ends, count) == none
    _without_table(
        operator, "n2", next(end for end in reversed(ends) if end[0] == address_of(operator, "n2"))
    )
    wait_for(lambda: tables(operator.lab) == [1, 1, 1], WITHIN_S, "the table of n2 stands again")
    assert let_in(operator, ends, count) == none
    assert operator.state(run) == "running"
    operator.run("stop", run, exit_code=0)
    wait_for(lambda: tables(operator.lab) == [0, 0, 0], WITHIN_S, "no table is left")
    assert_nothing_left(operator, run, "closed")


@pytest.mark.long
def test_kill_9_of_everything_leaves_no_table(operator: Tfdeploy) -> None:
    write_job(operator, "closed", "listening.py", protect="firewall")
    operator.run("launch", "--detach", "--name", "closed-2", exit_code=0)
    assert tables(operator.lab) == [1, 1, 1]
    for host in operator.lab.hosts:
        on_host(operator.lab, host, "kill -9 " + " ".join(pids(operator, host, "closed-2")))
    wait_for(lambda: tables(operator.lab) == [0, 0, 0], WITHIN_S, "no table is left")
    operator.run("stop", "closed-2")


@pytest.mark.long
def test_a_host_that_cannot_is_named_before_the_launch_and_rolls_it_back_after(
    operator: Tfdeploy, pipe: EventPipe
) -> None:
    write_job(operator, "closed", "listening.py", protect="firewall")
    launching = operator.start("launch", "--wait", "--name", "closed-3", *pipe.words)
    pipe.hold_at("step", step="prepare", state="begin")
    with host_changed_by_scripts(operator.lab, "n2", MAY_NOT, MAY):
        pipe.go_on()
        code, output = wait_for_end(launching)
        before = operator.run("launch", "--dry-run", exit_code=3).stderr
    assert (
        code == 3
        and "the firewall of the run cannot be made on this host: nft: " in output
        and "n2" in output
    ), output
    assert "not permitted" in output.lower() and "protect: peers" in output, output
    assert (
        "protect: firewall" in before and "n2" in before and "Operation not permitted" in before
    ), before
    assert tables(operator.lab) == [0, 0, 0]
    assert_nothing_left(operator, "closed-3", "closed")
