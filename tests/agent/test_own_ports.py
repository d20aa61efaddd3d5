"""Test a port that only the program itself binds, such as the port of PyTorch's store. tfdeploy
holds the port while the program is not running, and frees the port each time the program starts.
"""

from __future__ import annotations

import errno
import fcntl
import json
import signal
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent import wire
from tfdeploy.agent.health import diagnose, monitor
from tfdeploy.agent.health.peers import SignsResponder
from tfdeploy.agent.host import processes
from tfdeploy.agent.minder import held_ports
from tfdeploy.agent.minder.actions import LocalTask
from tfdeploy.agent.run import task_processes
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.live_runs import list_port_owners

MEETS = """
import os, socket, sys, time
where = socket.socket(socket.AF_INET6)
where.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
while not os.path.exists("go"):  # the run is not committed yet
    time.sleep(0.02)
time.sleep(0.3)  # as long as imports take
where.bind(("::", int(sys.argv[1])))
where.listen(5)
print("bound", flush=True)
if len(sys.argv) > 2 and os.environ["TFDEPLOY_TASK_ATTEMPT"] == "1":
    sys.exit(3)
time.sleep(float(os.environ.get("FOR_S", "0")))
"""
RECOVERY = {"worker:0": ("gang", True)}


def bind_alone(port: int) -> int:
    """Try to bind the port without SO_REUSEADDR. Return 0 or the errno."""
    with socket.socket(socket.AF_INET6) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("::", port))
        except OSError as error:
            return int(error.errno or -1)
    return 0


def part(port: int) -> wire.HostPart:
    tasks = [
        wire.TaskSpec(task="worker:0", role="worker", index=0, argv=[], env={}, own_port=port),
        wire.TaskSpec(task="worker:1", role="worker", index=1, argv=[], env={}),
    ]
    return wire.HostPart(
        run="r", job="j", mode="plain", host="n1", plan_digest="d", release="c", tasks=tasks
    )


def own(state: str, is_supervised: bool) -> dict[str, LocalTask]:
    one = wire.TaskStatus(run="r", task="worker:0", host="n1", state=state)
    return {
        "worker:0": LocalTask(status=one, is_supervised=is_supervised),
        "worker:1": LocalTask(
            status=wire.TaskStatus(run="r", task="worker:1", host="n1"), is_supervised=False
        ),
    }


@pytest.mark.parametrize(
    ("state", "is_supervised", "held"),
    [
        ("pending", False, True),
        ("pending", True, False),  # the supervisor (parent process) has not written a status yet
        ("starting", True, False),
        ("starting", False, False),  # the supervisor was killed, but the program may still be alive
        ("running", True, False),
        ("ended", True, False),
        ("ended", False, True),
        ("lost", False, True),
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_it_is_held_while_its_task_is_not_alive(
    hosts: Any, before: bool, state: str, is_supervised: bool, held: bool
) -> None:
    (port,) = hosts("n1").free_ports(1)
    ports = held_ports.ExclusivePorts(part(port))
    if before:
        ports.hold_all()
        assert bind_alone(port) == errno.EADDRINUSE
    ports.sync_held_ports(own(state, is_supervised))
    assert bind_alone(port) == (errno.EADDRINUSE if held else 0)
    ports.close()
    ports.sync_held_ports(own("ended", False))
    assert bind_alone(port) == 0


def test_what_somebody_else_has_is_refused_before_the_start_and_left_to_the_start_after_it(
    hosts: Any,
) -> None:
    (port,) = hosts("n1").free_ports(1)
    ports = held_ports.ExclusivePorts(part(port))
    with socket.socket() as other:
        other.bind(("0.0.0.0", port))
        with pytest.raises(held_ports.PortTaken):
            ports.hold_all()
        ports.sync_held_ports(own("ended", False))
    ports.sync_held_ports(own("ended", False))
    assert bind_alone(port) == errno.EADDRINUSE
    ports.release("worker:0")
    ports.release("worker:0")
    assert bind_alone(port) == 0


def launched(cluster: Any, field: str, *words: str, **fields: Any) -> int:
    (port,) = cluster.free_ports(1)
    cluster.write("meets.py", MEETS)
    given = {
        field: port,
        "env": {"FOR_S": "30" if fields.pop("lasts", False) else "0"},
        "runtime": False,
    }
    cluster.prepare(
        "r1", {"worker:0": ("n1", [sys.executable, "meets.py", str(port), *words], given)}, **fields
    )
    # After run.prepare, tfdeploy holds the task's port.
    assert bind_alone(port) == errno.EADDRINUSE
    cluster.each("run.start", "r1")
    cluster.each("run.commit", "r1")
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    return int(port)


def test_a_program_that_binds_alone_fails_on_a_held_port(hosts: Any) -> None:
    cluster = hosts("n1")
    launched(cluster, "port")
    cluster.wait_ended("r1")
    assert "Address already in use" in cluster.log("r1", "worker:0")


def test_it_is_let_go_of_before_the_first_start_and_before_each_that_follows(hosts: Any) -> None:
    cluster = hosts("n1")
    fields = {"recovery": RECOVERY, "restart_max": 1, "restart_backoff_s": [0.1, 0.1]}
    launched(cluster, "own_port", "fails once", **fields)
    cluster.wait_ended("r1")
    status = cluster.status("r1", "worker:0")
    assert (status.outcome, status.attempt, cluster.log("r1", "worker:0").count("bound")) == (
        "succeeded",
        2,
        2,
    )


def test_it_is_held_in_the_pause_before_a_start_and_free_at_the_end(hosts: Any) -> None:
    cluster = hosts("n1")
    fields = {"recovery": RECOVERY, "restart_max": 1, "restart_backoff_s": [30.0, 30.0]}
    port = launched(cluster, "own_port", "fails once", **fields)
    cluster.wait_state("r1", "worker:0", "ended")
    cluster.wait_until(lambda: bind_alone(port) == errno.EADDRINUSE)
    cluster.each("run.stop", "r1", grace_s=0.0)
    cluster.wait_ended("r1")
    cluster.wait_until(lambda: bind_alone(port) == 0)


def test_a_minder_that_takes_over_leaves_it_to_the_task_that_is_about_to_bind_it(
    hosts: Any,
) -> None:
    cluster = hosts("n1")
    launched(cluster, "own_port", lasts=True)
    minder = task_processes.read_minder(cluster.hosts["n1"].paths("r1"))
    processes.send_signal(minder, signal.SIGKILL)
    cluster.wait_until(lambda: "bound" in cluster.log("r1", "worker:0"))
    cluster.wait_until(
        lambda: task_processes.read_minder(cluster.hosts["n1"].paths("r1")) not in (None, minder)
    )
    assert cluster.status("r1", "worker:0").state in ("starting", "running")


def test_a_task_without_our_runtime_finds_none_of_it_on_its_path(
    hosts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/own/of/the/host")
    cluster = hosts("n1")
    tell = "import json, os, sys; print(json.dumps([dict(os.environ), sorted(sys.modules)]))"
    given = {"runtime": False, "traits": ["own_session", "one_client"]}
    cluster.launch("r1", {"worker:0": ("n1", [sys.executable, "-c", tell], given)})
    cluster.wait_ended("r1")
    env, modules = json.loads(cluster.log("r1", "worker:0"))
    assert (env["PYTHONPATH"], env["TFDEPLOY_TASK_TRAITS"]) == (
        "/own/of/the/host",
        "own_session,one_client",
    )
    assert "TF_GRPC_REUSE_PORT" not in env
    assert not [name for name in modules if "tfdeploy" in name]


def test_another_run_that_plans_it_is_told_whose_it_is_also_while_the_program_has_not_bound_it(
    hosts: Any,
) -> None:
    cluster = hosts("n1")
    (port,) = cluster.free_ports(1)
    forever = ("n1", ["sleep", "1000"], {"own_port": port})
    cluster.launch("r1", {"worker:0": forever})
    cluster.wait_state("r1", "worker:0", "running")
    # tfdeploy has freed the port, and in this test the task does not bind it.
    assert bind_alone(port) == 0
    workdir = cluster.hosts["n1"].context.workdir
    run = f"run r1 of job {cluster.job}"
    assert list_port_owners(workdir, "n1") == {
        port: f"worker:0 of {run}",
        cluster.hosts["n1"].mesh_port: f"the mesh of {run}",
    }
    assert list_port_owners(workdir, "n1", "r1") == {}
    cluster.each("run.stop", "r1", grace_s=0.0)
    cluster.wait_ended("r1")
    cluster.wait_until(lambda: list_port_owners(workdir, "n1") == {})
    # A minder stays after the end of its run while other hosts do not know of the end.
    with Path(cluster.hosts["n1"].paths("r1").minder_lock).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert list_port_owners(workdir, "n1") == {
            cluster.hosts[
                "n1"
            ].mesh_port: f"the mesh of {run}, which has ended; tfdeploy frees the "
            "port once all hosts of the run know of the end"
        }


def test_nobody_knocks_at_it_while_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = ["127.0.0.2:2222", "127.0.0.3:2222"]
    peers = [
        wire.Peer(task=f"worker:{n}", role="worker", host=f"n{n}", address=at, own_port=n == 0)
        for n, at in enumerate(addresses)
    ]
    mine = wire.HostPart(
        run="r",
        job="j",
        mode="plain",
        host="n9",
        plan_digest="d",
        release="c",
        peers=peers,
        stall_after_s=60.0,
    )
    asked: list[str] = []

    def tried(at: Iterable[str], guarded: bool = False) -> dict[str, str]:
        asked.extend(at)
        return dict.fromkeys(asked, "open")

    monkeypatch.setattr(monitor.reach, "try_ports", tried)
    rounds = monitor.Monitor(
        RunPaths(str(tmp_path / "j/runs/r/hosts/n1")), mine, None, SignsResponder(), lambda: None
    )
    facts = diagnose.StallFacts(
        host="n9", lockstep=True, after_s=60.0, peers={peer.task: peer for peer in peers}, signs={}
    )
    assert rounds._add_peer_facts(facts, set(), 1.0).port_answers == {"worker:1": "open"}
    assert asked == addresses[1:]
