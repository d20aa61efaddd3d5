"""Test what a host of a prepared run reports about the ports of the other hosts in the run."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import NewCluster
from tfdeploy.agent import wire
from tfdeploy.agent.call import Call
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import processes
from tfdeploy.agent.layout import HostPartMissing
from tfdeploy.agent.run import task_processes
from tfdeploy.agent.serve.run import links as run_links
from tfdeploy.agent.serve.server import failure_answer

TASKS = {"worker:0": ("n1", ["sleep", "1000"]), "worker:1": ("n2", ["sleep", "1000"])}


def shut(host: Any, run: str, job: str) -> list[tuple[str, str, str]]:
    ports_shut = run_links.VERBS["run.links"](Call(host.context, {"run": run, "job": job}))["shut"]
    return [(each["host"], each["task"], each["why"]) for each in ports_shut]


def test_hosts_that_have_prepared_reach_each_other(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2", "n3")
    cluster.prepare("r1", TASKS)
    for host in cluster.hosts.values():
        assert shut(host, "r1", cluster.job) == []


def test_a_port_that_nobody_minds_is_shut_and_ones_own_is_not_asked(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    cluster.prepare("r1", TASKS)
    minder = task_processes.read_minder(cluster.hosts["n2"].paths("r1"))
    assert minder is not None and processes.send_signal(minder, signal.SIGKILL)
    gone = [("n2", "", "closed")]
    cluster.wait_until(
        lambda: shut(cluster.hosts["n1"], "r1", cluster.job) == gone, what="n2's minder has gone"
    )


def test_a_host_where_the_run_has_ended_says_that_and_blames_no_way(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    cluster.prepare("r1", TASKS)
    cluster.hosts["n2"].call("run.abort", run="r1", job=cluster.job, reason="test")
    with pytest.raises((VerbError, HostPartMissing)) as caught:
        cluster.wait_until(
            lambda: shut(cluster.hosts["n1"], "r1", cluster.job) is None, what="n1 has heard of it"
        )
    # The error is unknown_run if n1's minder (the process that looks after the run) has removed the
    # run before or during the call.
    assert failure_answer(caught.value)["code"] in ("ended", "unknown_run")


@pytest.mark.fault("32 a name that leads to another host of the run, or out of it")
def test_a_name_that_leads_to_another_host_is_found(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2", "n3")
    cluster.prepare("r1", TASKS)
    file = Path(cluster.hosts["n1"].paths("r1").file("part.json"))
    whole = file.read_text()
    part = json.loads(whole)
    ways = {each["host"]: each for each in part["mesh"]}
    ways["n2"].update(port=ways["n3"]["port"], address=ways["n3"]["address"])
    file.write_text(json.dumps(part))
    assert shut(cluster.hosts["n1"], "r1", cluster.job) == [("n2", "", "n3 answers")]
    with socket.create_server(("127.0.0.1", 0)) as web:

        def serve() -> None:
            # The host makes two connections: one checks the port, and one asks which host answers
            # there.
            for _ in range(2):
                connection = web.accept()[0]
                with connection, contextlib.suppress(OSError):
                    connection.sendall(b"HTTP/1.0 400 no\r\n\r\n")
                    connection.recv(4096)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        ways["n2"].update(port=web.getsockname()[1], address="127.0.0.1")
        file.write_text(json.dumps(part))
        assert shut(cluster.hosts["n1"], "r1", cluster.job) == [
            ("n2", "", "no host of this run answers")
        ]
        thread.join(120)
    file.write_text(whole)


def test_a_port_of_a_task_may_be_closed_but_must_answer() -> None:
    with socket.socket() as held, socket.socket() as deaf:
        for one in (held, deaf):
            one.bind(("127.0.0.1", 0))
        deaf.listen(0)
        # The server never accepts this connection, so its queue is full.
        with socket.create_connection(deaf.getsockname()):
            ports = [
                run_links._PortToTry("n2", "worker:1", f"127.0.0.1:{one.getsockname()[1]}")
                for one in (held, deaf)
            ]
            assert [each["why"] for each in run_links._find_unreachable_ports(ports)] == [
                "no answer"
            ]


def part_of(host: str, hosts: int, ps: int) -> wire.HostPart:
    mesh = [wire.MeshHost(f"n{number}", f"10.0.0.{number}", 2222) for number in range(hosts)]
    peers = [
        wire.Peer(
            task=f"ps:{number}",
            role="ps",
            host=f"n{number}",
            serves=True,
            address=f"10.0.0.{number}:2223",
        )
        for number in range(ps)
    ]
    return wire.HostPart(
        run="r1",
        job="j",
        mode="async",
        host=host,
        plan_digest="d",
        release="c",
        mesh=mesh,
        peers=peers,
    )


def test_every_host_begins_with_its_neighbour() -> None:
    part = part_of("n2", 4, ps=4)
    tried = [
        (port.host, port.task)
        for port in run_links._ports_to_try(part, run_links._hosts_to_try(part))
    ]
    assert tried == [
        ("n3", ""),
        ("n3", "ps:3"),
        ("n0", ""),
        ("n0", "ps:0"),
        ("n1", ""),
        ("n1", "ps:1"),
    ]


def test_of_many_hosts_each_asks_the_next_and_those_that_serve() -> None:
    asked = run_links._hosts_to_try(part_of("n30", 1000, ps=2))
    assert asked == [*(f"n{number}" for number in range(31, 34)), "n0", "n1"]
