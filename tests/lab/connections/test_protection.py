"""Test that each host protects its own ports.

The ports of a host stay closed to strangers even if another host cannot filter connections, or if
there is a relay or NAT. The user is warned in these cases.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from support.faults.tampered import tampered_agent
from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command
from support.lab.hosts import host_changed_by_scripts, on_host, set_inventory
from support.lab.jobs import write_job
from support.lab.knocking import End, Knocking
from support.lab.remains import assert_nothing_left
from support.waiting import wait_for
from tfdeploy.agent.host.network import steering
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
STRANGER = "n3"
CANNOT = "def find_filter_problem(): return 'its kernel takes no filter'\n"
RELAY = """
import socket, sys, threading
to = (sys.argv[1], int(sys.argv[2]))
def copy(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass
def relay(near):
    with near, socket.create_connection(to) as far:
        back = threading.Thread(target=copy, args=(far, near))
        back.start()
        copy(near, far)
        back.join()
with socket.create_server(("0.0.0.0", int(sys.argv[3]))) as server:
    print("listens", flush=True)
    while True:
        threading.Thread(target=relay, args=(server.accept()[0],), daemon=True).start()
"""
NAT = """nft add table ip redirected
nft add chain ip redirected out '{{ type nat hook {hook} ; }}'
nft add rule ip redirected out {what}"""
INWARDS = """nft add chain ip redirected in '{{ type nat hook prerouting priority -100 ; }}'
nft add rule ip redirected in ip daddr {address} dnat to {to}"""
UNDO_NAT = "nft delete table ip redirected"


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


def address_of(operator: Tfdeploy, host: str) -> str:
    return next(str(row["address"]) for row in operator.lab.status() if row["host"] == host)


def launch(operator: Tfdeploy, run: str, *args: str, exit_code: int = 0) -> str:
    """Launch a run on n1 and n2 and return the output."""
    done = operator.run(
        "launch",
        "--name",
        run,
        "--exclude",
        STRANGER,
        *(args or ("--detach",)),
        exit_code=exit_code,
    )
    assert "Traceback" not in done.stderr
    return done.stderr


def ports_on(status: Any, host: str) -> list[tuple[str, int]]:
    addresses = [
        task["address"].rpartition(":") for task in status["tasks"] if task["host"] == host
    ]
    return [(address, int(port)) for address, _, port in addresses]


@pytest.mark.fault("58 a host that cannot keep strangers out")
def test_a_host_that_cannot_filter_opens_no_other_host(operator: Tfdeploy) -> None:
    write_job(operator, "weak", "greeting.py", flags="none")
    with tampered_agent(operator.lab, "n2", {steering: CANNOT}):
        refused = launch(operator, "weak-1", exit_code=3)
        assert (
            "cannot keep strangers from the ports of n2 (on n2: its kernel takes no filter)"
            in refused
        ), refused
        assert "host n2" in refused and "--allow-open" in refused and "protect: none" in refused, (
            refused
        )
        checked = operator.json("check", "--exclude", STRANGER, exit_code=1)["hosts"]
        assert [(each["host"], each["check"]) for each in bad_checks(checked)] == [
            ("n2", "protect")
        ], checked
        said = launch(operator, "weak-2", "--allow-open")
    assert "warning: protect: none on n2" in said and "protect: peers on n1" in said, said
    status = operator.json("status", "weak-2")
    assert (
        status["protect"]["hosts"] == {"n1": "peers", "n2": "none"}
        and status["protect"]["used"] == "none"
    )
    assert (
        "protect: peers on n1, none on n2" in operator.run("status", "weak-2", exit_code=0).stdout
    )
    levels = {row["host"]: row["protect"] for row in operator.json("audit", "weak-2")["ports"]}
    assert levels == {"n1": "peers", "n2": "none"}
    healthy, open_to_all = ports_on(status, "n1"), ports_on(status, "n2")
    strangers = Knocking(operator.lab, STRANGER, [*healthy, *open_to_all], 20).ended()
    assert [strangers.at(End(*end)).get("let in", 0) for end in healthy] == [0], strangers
    assert [strangers.at(End(*end))["let in"] for end in open_to_all] == [20], strangers
    peers = Knocking(operator.lab, "n2", healthy, 20).ended()
    assert peers.count("let in") == peers.total >= 20, peers
    operator.run("stop", "weak-2", exit_code=0)


def bad_checks(hosts: Any) -> list[Any]:
    return [
        {"host": host["host"], **each}
        for host in hosts
        for each in host["checks"]
        if not each["ok"]
    ]


@contextmanager
def relay(operator: Tfdeploy, host: str, address: str, port: int) -> Iterator[None]:
    """Forward TCP port 2999 of `host` to another host."""
    command = host_command(
        operator.lab, host, [sys.executable, "-c", RELAY, address, str(port), "2999"]
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "listens\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.fault("63 a stranger who relays a member's connection to the mesh")
def test_a_stranger_who_relays_a_member_is_not_let_in_and_is_said(operator: Tfdeploy) -> None:
    write_job(operator, "relayed", "greeting.py", flags="none")
    first = operator.json("launch", "--dry-run", "--exclude", STRANGER)["hosts"][0]
    stranger = address_of(operator, STRANGER)
    what = f"ip daddr {first['address']} tcp dport {first['mesh_port']} dnat to {stranger}:2999"
    redirected = host_changed_by_scripts(
        operator.lab, "n2", NAT.format(hook="output priority -100", what=what), UNDO_NAT
    )
    with relay(operator, STRANGER, first["address"], first["mesh_port"]), redirected:
        launch(operator, "relayed-1")
        knocked = ports_on(operator.json("status", "relayed-1"), "n1")
        knocks = Knocking(operator.lab, STRANGER, knocked, 20).ended()
        assert knocks.let_in == 0 and knocks.total >= 20, knocks
        status = wait_for(
            lambda: status_with_turned_away(operator, "relayed-1"),
            20,
            "n1 says through what n2 came",
        )
    assert status["protect"]["not_admitted"] == [{"host": "n1", "address": stranger, "of": "n2"}]
    assert (
        status["protect"]["admitted"] == []
        and "which is not an address of n2" in status["protect"]["why"]
    )
    text = operator.run("status", "relayed-1", exit_code=0).stdout
    assert f"not admitted: n2 connected to n1 from {stranger}" in " ".join(text.split()), text
    journal = on_host(operator.lab, "n1", "cat ~/tfdeploy/relayed/runs/relayed-1/hosts/n1/journal")
    assert '"not admitted"' in journal, journal
    operator.run("stop", "relayed-1", exit_code=0)


def status_with_turned_away(operator: Tfdeploy, run: str) -> Any:
    status = operator.json("status", run)
    return status if status["protect"]["not_admitted"] else None


@pytest.mark.fault("32 a host behind NAT")
def test_a_host_behind_nat_is_refused_with_the_reason_and_let_in_by_what_it_advertises(
    operator: Tfdeploy,
) -> None:
    write_job(operator, "behind", "greeting.py", flags="none")
    where, seen = {host: address_of(operator, host) for host in ("n1", "n2")}, "10.255.99.2"
    nat = NAT.format(hook="postrouting priority 100", what=f"ip daddr {where['n1']} snat to {seen}")
    back = INWARDS.format(address=seen, to=where["n2"])
    way = host_changed_by_scripts(
        operator.lab, "n1", f"ip route add {seen} via {where['n2']}", f"ip route del {seen}"
    )
    with way, host_changed_by_scripts(operator.lab, "n2", f"{nat}\n{back}", UNDO_NAT):
        refused = launch(operator, "behind-1", exit_code=3)
        assert (
            "n2 does not reach n1: turned away (this host's connections have the source address "
            f"{seen}, which is not its own address) at" in refused
        ), refused
        assert "`advertise:`" in refused, refused
        assert_nothing_left(operator, "behind-1", "behind")
        set_inventory(operator, hosts={"n2": {"advertise": seen}})
        launch(operator, "behind-2")
        ports = ports_on(operator.json("status", "behind-2"), "n1")
        peers = Knocking(operator.lab, "n2", ports, 20).ended()
    assert peers.count("let in") == peers.total >= 20, peers
    operator.run("stop", "behind-2", exit_code=0)


@pytest.mark.fault("58 a name that is a public address")
def test_a_name_that_is_public_on_the_hosts_is_refused(operator: Tfdeploy) -> None:
    write_job(operator, "named", "greeting.py", flags="none")
    set_inventory(operator, hosts={"n2": {"advertise": "pub.lan"}})
    names = "cp /etc/hosts /etc/hosts.before; echo '8.8.8.8 pub.lan' >> /etc/hosts"
    with host_changed_by_scripts(
        operator.lab, "n1", names, "cat /etc/hosts.before > /etc/hosts; rm /etc/hosts.before"
    ):
        refused = launch(operator, "named-1", "--dry-run", exit_code=3)
    assert (
        "the address of n2 in the cluster would be pub.lan, "
        "which n1 resolves to the public address 8.8.8.8" in refused
    ), refused


def test_a_loopback_lab_goes_on_where_nothing_can_filter(
    loopback_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(loopback_lab)
    write_job(operator, "demo", "quick.py", "--steps=1")
    with ExitStack() as stack:
        for host in loopback_lab.hosts:
            stack.enter_context(tampered_agent(loopback_lab, host, {steering: CANNOT}))
        stderr = operator.run("launch", "--wait", exit_code=0).stderr
    assert "warning: protect: none (" in stderr, stderr
