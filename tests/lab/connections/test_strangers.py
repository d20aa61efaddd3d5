"""Test that strangers on the network reach no port of a run, whatever process of the run dies.

The hosts of the run can reach the ports from each of their addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import host_changed_by_scripts, on_host, set_inventory
from support.lab.jobs import write_job
from support.lab.knocking import Knocking
from support.lab.run_files import host_state, kill, list_alive, task_status
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
STRANGER = "n3"
HOSTS = ("n1", "n2", "n3")
CARD = "$(ip -o route get {to} | sed 's/.* dev \\([^ ]*\\).*/\\1/')"


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Iterator[Tfdeploy]:
    """Return an operator whose hosts have IPv6 addresses.

    n2 also has a second IPv4 address, which its network interface has but the inventory does not.
    """
    where = addresses(few_hosts)
    with ExitStack() as undo:
        for number, host in enumerate(HOSTS, 1):
            card = CARD.format(to=where["n1" if host != "n1" else "n2"])
            given = [f"fd77::{number}/64", *(["10.255.77.2/24"] if host == "n2" else [])]
            undo.enter_context(
                host_changed_by_scripts(
                    few_hosts,
                    host,
                    "; ".join(
                        f"ip addr add {each} dev {card} {'nodad' if ':' in each else ''}"
                        for each in given
                    ),
                    "; ".join(f"ip addr del {each} dev {card}" for each in given),
                )
            )
        undo.enter_context(
            host_changed_by_scripts(
                few_hosts,
                "n1",
                f"ip addr add 10.255.77.1/24 dev {CARD.format(to=where['n2'])}",
                "true",
            )
        )
        yield tfdeploy(few_hosts)
        on_host(
            few_hosts,
            "n1",
            f"ip addr del 10.255.77.1/24 dev {CARD.format(to=where['n2'])}",
            root=True,
            check=False,
        )


def addresses(lab: Lab) -> dict[str, str]:
    return {str(row["host"]): str(row["address"]) for row in lab.status()}


Rows = dict[str, dict[str, object]]


def launch(operator: Tfdeploy, run: str, *flags: str, **keys: object) -> Rows:
    """Launch a run on n1 and n2. When all tasks run, return {task: its row of `status`}."""
    restart = {"max": 50, "backoff": ["100ms", "300ms"]}
    write_job(
        operator, run[:-2], "greeting.py", *flags, **{"restart": restart, "flags": "none", **keys}
    )
    operator.run("launch", "--detach", "--name", run, "--exclude", STRANGER, exit_code=0)
    return {row["task"]: row for row in operator.json("status", run)["tasks"]}


def ports(operator: Tfdeploy, rows: Rows) -> list[tuple[str, int]]:
    """Return the addresses and ports of the tasks, for IPv4 and IPv6."""
    where = addresses(operator.lab)
    results = []
    for row in rows.values():
        port, host = int(str(row["address"]).rpartition(":")[2]), str(row["host"])
        results += [(where[host], port), (f"fd77::{host[1:]}", port)]
    return results


def strike(operator: Tfdeploy, run: str, rows: Rows, task: str, victim: str) -> None:
    """Kill one process with SIGKILL, and wait for the process that replaces it.

    `victim` is "task", "supervisor" (the task's parent process) or "minder" (the process that looks
    after the run on the task's host)."""
    job, host = run[:-2], str(rows[task]["host"])
    before, minder = (
        task_status(operator, run, job, host, task),
        host_state(operator, run, job, host)["minder_pid"],
    )
    kill(
        operator,
        host,
        {"task": before["pid"], "supervisor": before["supervisor_pid"], "minder": minder}[victim],
    )
    if victim == "minder":
        wait_for(
            lambda: host_state(operator, run, job, host)["minder_pid"] != minder,
            20,
            "another minder",
        )
    else:
        wait_for(
            lambda: runs_again(operator, run, host, task, before["attempt"]), 20, "another attempt"
        )


def runs_again(operator: Tfdeploy, run: str, host: str, task: str, attempt: int) -> bool:
    now = task_status(operator, run, run[:-2], host, task)
    return bool(now["attempt"] > attempt and now["state"] == "running" and now["up"])


@pytest.mark.fault("63 a stranger on the ports of a run, while all that keeps it dies")
def test_no_stranger_is_let_in_whatever_dies(operator: Tfdeploy) -> None:
    rows = launch(operator, "closed-1")
    assert operator.json("status", "closed-1")["protect"]["used"] == "peers"
    knocked = ports(operator, rows)
    strangers = Knocking(operator.lab, STRANGER, knocked, 750)
    for victim in ("task", "minder", "supervisor", "minder", "task"):
        strike(operator, "closed-1", rows, "worker:0", victim)
    seen = strangers.ended()
    assert seen.total >= 3000 and seen.let_in == 0, seen
    peers = Knocking(operator.lab, "n1", knocked, 100).ended()
    second = Knocking(
        operator.lab,
        "n1",
        [("10.255.77.2", port) for _, port in ports(operator, {"w": rows["worker:0"]})],
        100,
    )
    assert peers.count("let in") == peers.total >= 400, peers
    through = second.ended()
    assert through.count("let in") == through.total >= 100, through
    operator.run("stop", "closed-1", exit_code=0)


@pytest.mark.fault("58 a program whose socket no filter covers")
def test_a_program_that_listens_apart_from_the_held_port_is_named(operator: Tfdeploy) -> None:
    launch(operator, "apart-1", "--only_ipv4")
    expected_text = "is open to everybody: the task's program listens on 0.0.0.0 only"
    wait_for(
        lambda: operator.json("status", "apart-1")["protect"]["why"].count(expected_text) == 2,
        20,
        "both are named",
    )
    assert operator.run("status", "apart-1", exit_code=0).stdout.count("to everybody") == 2
    operator.run("stop", "apart-1", exit_code=0)


@pytest.mark.fault(
    "63 a stranger, where kill -9 took the minder and all supervisors at once, and the run goes on"
)
def test_no_stranger_is_let_in_where_all_of_the_agent_was_killed_at_once(
    operator: Tfdeploy,
) -> None:
    rows = launch(operator, "bare-1", "--in_a_child")
    host = str(rows["worker:0"]["host"])
    knocked = ports(operator, {"w": rows["worker:0"]})
    strangers = Knocking(operator.lab, STRANGER, knocked, 40)
    before, minder = (
        task_status(operator, "bare-1", "bare", host, "worker:0"),
        host_state(operator, "bare-1", "bare", host),
    )
    server = int(
        on_host(operator.lab, host, f"cat /proc/{before['pid']}/task/{before['pid']}/children")
    )
    kill(operator, host, minder["minder_pid"], before["supervisor_pid"], check=False)
    pids = (server, minder["minder_pid"], before["supervisor_pid"], before["pid"])
    wait_for(lambda: list_alive(operator, host, *pids) == [server], 20, "only the server is alive")
    peers = Knocking(operator.lab, "n1", knocked, 50).ended()
    assert peers.count("let in") == peers.total >= 100, peers
    assert list_alive(operator, host, server) == [server]
    watching = operator.start("status", "--watch", "bare-1")
    wait_for(
        lambda: runs_again(operator, "bare-1", host, "worker:0", before["attempt"]),
        30,
        "another attempt",
    )
    peers = Knocking(operator.lab, "n1", knocked, 50).ended()
    assert peers.count("let in") == peers.total >= 100, peers
    seen = strangers.ended()
    assert seen.total >= 80 and seen.count("let in") == 0, seen
    operator.run("stop", "bare-1", exit_code=0)
    assert watching.wait(timeout=120) == 0


@pytest.mark.long
@pytest.mark.fault("63 a stranger, while a gang starts again")
def test_no_stranger_is_let_in_while_a_gang_starts_again(operator: Tfdeploy) -> None:
    set_inventory(operator, roles={"worker": ["n1", "n2"]})
    rows = launch(operator, "gang-1", mode="mirrored")
    knocked = ports(operator, rows)
    strangers = Knocking(operator.lab, STRANGER, knocked, 750)
    for task, victim in (
        ("worker:1", "task"),
        ("worker:0", "minder"),
        ("worker:0", "supervisor"),
        ("worker:1", "minder"),
    ):
        other = "worker:1" if task == "worker:0" else "worker:0"
        before = task_status(operator, "gang-1", "gang", str(rows[other]["host"]), other)["attempt"]
        strike(operator, "gang-1", rows, task, victim)
        if victim != "minder":
            again = partial(runs_again, operator, "gang-1", str(rows[other]["host"]), other, before)
            wait_for(again, 30, "both again")
    peers = Knocking(operator.lab, "n1", knocked, 400).ended()
    assert peers.count("let in") == peers.total >= 400, peers
    seen = strangers.ended()
    assert seen.total >= 3000 and seen.count("let in") == 0, seen
    operator.run("stop", "gang-1", exit_code=0)


@pytest.mark.long
def test_a_host_is_let_in_from_each_of_its_interfaces_whatever_minder_there_is(
    operator: Tfdeploy,
) -> None:
    rows = launch(operator, "ways-1")
    second = [("10.255.77.2", port) for _, port in ports(operator, {"w": rows["worker:0"]})]
    peers = Knocking(operator.lab, "n1", second, 500, source="10.255.77.1")
    for _ in range(3):
        strike(operator, "ways-1", rows, "worker:0", "minder")
    seen = peers.ended()
    assert seen.count("let in") == seen.total >= 500, seen
    operator.run("stop", "ways-1", exit_code=0)


@pytest.mark.long
def test_a_host_is_let_in_from_an_address_that_only_the_mesh_saw(operator: Tfdeploy) -> None:
    rows, where = launch(operator, "moved-1"), addresses(operator.lab)
    card, back = CARD.format(to=where["n2"]), CARD.format(to=where["n1"])
    do = (
        f"ip addr add 10.255.88.1/32 dev {card}; ip route add {where['n2']} dev {card} src "
        "10.255.88.1"
    )
    undo = f"ip route del {where['n2']}; ip addr del 10.255.88.1/32 dev {card}"
    with ExitStack() as stack:
        stack.enter_context(
            host_changed_by_scripts(
                operator.lab,
                "n2",
                f"ip route add 10.255.88.1 dev {back}",
                "ip route del 10.255.88.1",
            )
        )
        stack.enter_context(host_changed_by_scripts(operator.lab, "n1", do, undo))
        seen = {"10.255.88.1": "n1"}
        wait_for(
            lambda: host_state(operator, "moved-1", "moved", "n2")["admitted"] == seen,
            30,
            "n2 has seen it",
        )
        answer = operator.json("status", "moved-1")["protect"]["admitted"]
        assert answer == [{"host": "n2", "address": "10.255.88.1", "of": "n1"}]
        audited = operator.json("audit", "moved-1", exit_code=None)["admitted"]
        assert audited == answer
        knocked = [
            pair for pair in ports(operator, {"w": rows["worker:0"]}) if pair[0] == where["n2"]
        ]
        peers = Knocking(operator.lab, "n1", knocked, 500)
        for _ in range(3):
            strike(operator, "moved-1", rows, "worker:0", "minder")
        seen = peers.ended()
        assert seen.count("let in") == seen.total >= 500, seen
        strike(operator, "moved-1", rows, "worker:0", "task")
        seen = Knocking(operator.lab, "n1", knocked, 100).ended()
        assert seen.count("let in") == seen.total >= 100, seen
    operator.run("stop", "moved-1", exit_code=0)
