"""Strangers on the network are not let in at any port of a run, whatever dies; its hosts are, from each of their addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import changed_host, on_host
from support.lab.jobs import write_job
from support.lab.knocking import Knocking
from support.lab.run_files import host_state, kill, task_status
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
STRANGER = "n3"
HOSTS = ("n1", "n2", "n3")
CARD = "$(ip -o route get {to} | sed 's/.* dev \\([^ ]*\\).*/\\1/')"


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Iterator[Tfdeploy]:
    """Each host has an IPv6 address, and n2 a second one of IPv4, which only its interface says."""
    where = addresses(few_hosts)
    with ExitStack() as undo:
        for number, host in enumerate(HOSTS, 1):
            card = CARD.format(to=where["n1" if host != "n1" else "n2"])
            given = [f"fd77::{number}/64", *(["10.255.77.2/24"] if host == "n2" else [])]
            undo.enter_context(
                changed_host(
                    few_hosts,
                    host,
                    "; ".join(f"ip addr add {each} dev {card} {'nodad' if ':' in each else ''}" for each in given),
                    "; ".join(f"ip addr del {each} dev {card}" for each in given),
                )
            )
        undo.enter_context(changed_host(few_hosts, "n1", f"ip addr add 10.255.77.1/24 dev {CARD.format(to=where['n2'])}", "true"))
        yield tfdeploy(few_hosts)
        on_host(few_hosts, "n1", f"ip addr del 10.255.77.1/24 dev {CARD.format(to=where['n2'])}", root=True, check=False)


def addresses(lab: Lab) -> dict[str, str]:
    return {str(row["host"]): str(row["address"]) for row in lab.status()}


def launch(operator: Tfdeploy, run: str, *flags: str, **keys: object) -> dict[str, dict[str, object]]:
    """task -> its row of status, once all run on n1 and n2."""
    restart = {"max": 50, "backoff": ["100ms", "300ms"]}
    write_job(operator, run[:-2], "greeting.py", *flags, **{"restart": restart, "flags": "none", **keys})
    operator.run("launch", "--detach", "--name", run, "--exclude", STRANGER, exit_code=0)
    return {row["task"]: row for row in operator.json("status", run)["tasks"]}


def ports(operator: Tfdeploy, rows: dict[str, dict[str, object]]) -> list[tuple[str, int]]:
    """Of the tasks, by IPv4 and IPv6."""
    where = addresses(operator.lab)
    found = []
    for row in rows.values():
        port, host = int(str(row["address"]).rpartition(":")[2]), str(row["host"])
        found += [(where[host], port), (f"fd77::{host[1:]}", port)]
    return found


@pytest.mark.fault("63 a stranger on the ports of a run, while all that keeps it dies")
def test_no_stranger_is_let_in_whatever_dies(operator: Tfdeploy) -> None:
    rows = launch(operator, "closed-1")
    assert operator.json("status", "closed-1")["protect"]["used"] == "peers"
    knocked = ports(operator, rows)
    strangers = Knocking(operator.lab, STRANGER, knocked, 750)
    for victim in ("task", "minder", "supervisor", "minder", "task"):
        row = rows["worker:0"]
        host, before = str(row["host"]), task_status(operator, "closed-1", "closed", str(row["host"]), "worker:0")
        minder = host_state(operator, "closed-1", "closed", host)["minder_pid"]
        pid = {"task": before["pid"], "supervisor": before["supervisor_pid"], "minder": minder}[victim]
        kill(operator, host, pid)
        if victim == "minder":
            wait_for(lambda: host_state(operator, "closed-1", "closed", host)["minder_pid"] != minder, 20, "another minder")  # noqa: B023
        else:
            wait_for(
                lambda: (
                    (now := task_status(operator, "closed-1", "closed", host, "worker:0"))["attempt"] > before["attempt"]  # noqa: B023
                    and now["state"] == "running"
                ),
                20,
                "another attempt",
            )
    seen = strangers.ended()
    assert seen.total >= 3000 and seen.let_in == 0, seen
    peers = Knocking(operator.lab, "n1", knocked, 100).ended()
    second = Knocking(operator.lab, "n1", [("10.255.77.2", port) for _, port in ports(operator, {"w": rows["worker:0"]})], 100)
    assert peers.count("let in") == peers.total >= 400, peers
    through = second.ended()
    assert through.count("let in") == through.total >= 100, through
    operator.run("stop", "closed-1", exit_code=0)


@pytest.mark.fault("58 a program whose socket no filter covers")
def test_a_program_that_listens_apart_from_the_held_port_is_named(operator: Tfdeploy) -> None:
    launch(operator, "apart-1", "--only_ipv4")
    words = "is open to everybody: its program listens on 0.0.0.0"
    wait_for(lambda: operator.json("status", "apart-1")["protect"]["why"].count(words) == 2, 20, "both are named")
    assert operator.run("status", "apart-1", exit_code=0).stdout.count("to everybody") == 2
    operator.run("stop", "apart-1", exit_code=0)
