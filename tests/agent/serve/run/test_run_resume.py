"""Test that a host resumes a run on request, after it has lost all processes of the run, for
example by a reboot. A run that has ended on the other hosts is not resumed.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster
from tfdeploy.agent import wire
from tfdeploy.agent.call import Call
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.atomic import write_json
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.run import task_processes
from tfdeploy.agent.serve.run import minder_start
from tfdeploy.agent.serve.run import status as run_status
from tfdeploy.model.answers.failures import format_advice

FOREVER = ["sh", "-c", "echo attempt $TFDEPLOY_TASK_ATTEMPT; exec sleep 1000"]
PS_AND_WORKER = {"ps:0": ("n1", FOREVER), "worker:0": ("n2", FOREVER)}
ALONE: dict[str, Any] = {
    "recovery": dict.fromkeys(PS_AND_WORKER, ("alone", False)),
    "restart_max": 3,
}
QUICKLY: dict[str, Any] = {"restart_backoff_s": [0.1, 0.4]}


def power_cut(cluster: Cluster, run: str, host: str) -> None:
    """End all processes of the run on this host. Then change the run's files as if they had been
    written before a reboot.
    """
    paths = cluster.hosts[host].paths(run)
    tasks = [spec.task for spec in paths.part().tasks]
    ours = {
        pid
        for pid in processes.all_processes()
        if os.fsencode(paths.host_dir) in processes.read_command_line(pid)
    }
    everyone = [
        who
        for pid in ours | task_processes.find_task_processes(paths, tasks)[0]
        if (who := processes.read_identity(pid))
    ]
    # All processes are stopped with SIGSTOP before they are killed, so that none of them can react
    # to the end of another one.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for who in everyone:
            processes.send_signal(who, number)
    cluster.wait_until(lambda: not any(map(processes.is_alive, everyone)))
    state = paths.state()
    state.boot_id, state.marks = "an earlier boot", dict.fromkeys(state.marks, 1e9)
    write_json(paths.file("state.json"), wire.to_wire(state))
    for task in tasks:
        status = paths.status(task)
        if status.state != "pending":
            status.boot_id = "an earlier boot"
            paths.write_status(status)


def resumed(cluster: Cluster, run: str, host: str) -> Any:
    return minder_start.resume_run(
        Call(cluster.hosts[host].context, {"run": run, "job": cluster.job})
    )


def stands(cluster: Cluster, run: str, task: str) -> tuple[int, str]:
    status = cluster.status(run, task)
    return status.attempt, status.state


def test_a_task_alone_starts_again_and_the_others_go_on(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    cluster.launch("r1", PS_AND_WORKER, **ALONE, **QUICKLY)
    for task in PS_AND_WORKER:
        cluster.wait_state("r1", task, "running")
    power_cut(cluster, "r1", "n2")
    paths = cluster.hosts["n2"].paths("r1")
    seen = run_status.describe_run(paths)
    assert (seen["live"], seen["left"]) == (False, True)
    assert [(row["state"], row["reason"]) for row in seen["tasks"]] == [("lost", "host rebooted")]
    assert resumed(cluster, "r1", "n2") == {"resumed": True}
    cluster.wait_until(lambda: stands(cluster, "r1", "worker:0") == (2, "running"))
    assert resumed(cluster, "r1", "n2") == {"resumed": False}
    assert stands(cluster, "r1", "ps:0") == (1, "running")
    assert cluster.log("r1", "worker:0") == "attempt 1\nattempt 2\n"
    assert paths.state().boot_id == processes.boot_id() and paths.state().marks["prepared"] < 1e9
    assert (
        cluster.hosts["n1"].paths("r1").state().ended_tasks["worker:0"]["reason"] == "host rebooted"
    )
    cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=5.0)
    assert cluster.wait_ended("r1")["n2"].stop_requested


def test_a_gang_starts_again_together(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2", "n3")
    tasks = {f"worker:{n}": (f"n{n + 1}", FOREVER) for n in range(3)}
    cluster.launch(
        "r1", tasks, recovery=dict.fromkeys(tasks, ("gang", True)), restart_max=3, **QUICKLY
    )
    for task in tasks:
        cluster.wait_state("r1", task, "running")
    power_cut(cluster, "r1", "n3")
    # A real worker:0 would end because it has lost worker:2. Here, the test kills worker:0.
    os.kill(cluster.status("r1", "worker:0").pid, signal.SIGKILL)
    cluster.wait_until(lambda: cluster.state("r1", "n2").again)
    # worker:1 must still be in its first attempt, because no task may restart before n3 is back.
    assert stands(cluster, "r1", "worker:1")[0] == 1
    resumed(cluster, "r1", "n3")
    for task in tasks:
        cluster.wait_until(lambda task=task: stands(cluster, "r1", task) == (2, "running"))
    assert {cluster.status("r1", task).round for task in tasks} == {2}


def test_all_hosts_at_once(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    cluster.launch("r1", PS_AND_WORKER, **ALONE, **QUICKLY)
    for task in PS_AND_WORKER:
        cluster.wait_state("r1", task, "running")
    for host in cluster.hosts:
        power_cut(cluster, "r1", host)
    resumed(cluster, "r1", "n1")
    words = run_status.task_status
    paths = cluster.hosts["n1"].paths("r1")
    cluster.wait_until(lambda: words(paths, "ps:0").state == "pending")
    assert (
        words(paths, "ps:0").reason
        == "starts again as soon as another host of the run answers: host rebooted"
    )
    resumed(cluster, "r1", "n2")
    for task in PS_AND_WORKER:
        cluster.wait_until(lambda task=task: stands(cluster, "r1", task) == (2, "running"))


def test_the_last_host_of_a_run_waits_for_nobody(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    tasks = {"worker:0": ("n1", FOREVER), "worker:1": ("n2", ["sh", "-c", "exit 0"])}
    cluster.launch(
        "r1", tasks, recovery=dict.fromkeys(tasks, ("alone", False)), restart_max=3, **QUICKLY
    )
    cluster.wait_ended("r1", "n2")
    cluster.wait_until(lambda: "worker:1" in cluster.state("r1", "n1").ended_tasks)
    power_cut(cluster, "r1", "n1")
    resumed(cluster, "r1", "n1")
    cluster.wait_until(lambda: stands(cluster, "r1", "worker:0") == (2, "running"))


def test_without_restarts_the_others_hear_that_it_is_lost(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    cluster.launch("r1", PS_AND_WORKER)
    cluster.wait_state("r1", "worker:0", "running")
    power_cut(cluster, "r1", "n2")
    resumed(cluster, "r1", "n2")
    states = cluster.wait_ended("r1")
    assert {state.abort_reason for state in states.values()} == {
        "worker:0 on n2 lost: host rebooted"
    }
    assert cluster.alive("r1") == []


def test_what_was_stopped_meanwhile_does_not_start_again(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    cluster.launch("r1", PS_AND_WORKER, **ALONE, **QUICKLY)
    cluster.wait_state("r1", "worker:0", "running")
    power_cut(cluster, "r1", "n2")
    cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=5.0)
    cluster.wait_until(lambda: not is_locked(cluster.hosts["n1"].paths("r1").file("minder.lock")))
    # n2 does not learn of the stop, because no other host's minder (the process that looks after
    # the run) is alive.
    resumed(cluster, "r1", "n2")
    cluster.wait_until(
        lambda: "as soon as another host" in cluster.state("r1", "n2").again.get("worker:0", "")
    )
    cluster.hosts["n2"].call("run.stop", run="r1", job=cluster.job, grace_s=5.0)
    status, state = cluster.status("r1", "worker:0"), cluster.state("r1", "n2")
    assert (status.attempt, status.reason, state.phase) == (1, "host rebooted", "ended")
    with pytest.raises(VerbError, match="has ended"):
        resumed(cluster, "r1", "n2")


@pytest.mark.parametrize("verbs", [(), ("run.start",)])
def test_nothing_starts_before_commit(hosts: NewCluster, verbs: tuple[str, ...]) -> None:
    cluster = hosts("n1", "n2")
    cluster.prepare(
        "r1", PS_AND_WORKER, **ALONE, **QUICKLY, start_within_s=5.0, commit_within_s=5.0
    )
    for verb in verbs:
        cluster.each(verb, "r1")
    power_cut(cluster, "r1", "n2")
    with pytest.raises(VerbError) as refused:
        resumed(cluster, "r1", "n2")
    assert refused.value.code == "ended"
    assert cluster.wait_ended("r1", "n1")["n1"].abort_reason
    assert not processes.find_by_environment(
        task_processes.environment_markers(cluster.hosts["n2"].paths("r1")),
        processes.all_processes(),
    )


def test_a_run_that_came_later_is_not_disturbed(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch(
        "r1", {"worker:0": ("n1", FOREVER)}, recovery={"worker:0": ("alone", False)}, restart_max=3
    )
    cluster.wait_state("r1", "worker:0", "running")
    power_cut(cluster, "r1", "n1")
    cluster.launch(
        "r2", {"worker:0": ("n1", ["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"])}
    )
    for _ in range(2):
        with pytest.raises(VerbError) as refused:
            resumed(cluster, "r1", "n1")
        told = format_advice("n1", refused.value.advice, refused.value.details)
        assert (refused.value.code, told) == ("superseded", "`tfdeploy status r2`")
        Path(cluster.hosts["n1"].paths("r2").cwd, "go").touch()
        cluster.wait_ended("r2")
    # A resume that is refused does not change the status of the task.
    assert stands(cluster, "r1", "worker:0") == (1, "running")


def test_a_port_that_somebody_took_meanwhile_is_named(hosts: NewCluster) -> None:
    import socket

    cluster = hosts("n1")
    (port,) = cluster.free_ports(1)
    cluster.launch(
        "r1",
        {"worker:0": ("n1", ["sh", "-c", "sleep 1000"], {"port": port, "ready_timeout_s": 60.0})},
    )
    power_cut(cluster, "r1", "n1")
    with socket.socket() as other:
        other.bind(("0.0.0.0", port))
        other.listen()
        with pytest.raises(VerbError) as refused:
            resumed(cluster, "r1", "n1")
    assert refused.value.code == "port_taken" and str(os.getpid()) in refused.value.what
    assert resumed(cluster, "r1", "n1") == {"resumed": True}


def test_a_host_that_was_up_for_long_starts_with_a_fresh_count(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch(
        "r1",
        {"worker:0": ("n1", FOREVER)},
        recovery={"worker:0": ("alone", False)},
        restart_max=1,
        **QUICKLY,
    )
    for number in (1, 2):
        cluster.wait_until(
            lambda number=number: stands(cluster, "r1", "worker:0") == (number, "running")
        )
        paths = cluster.hosts["n1"].paths("r1")
        if number == 1:
            # This kill uses up the only restart that is allowed.
            os.kill(paths.status("worker:0").pid, signal.SIGKILL)
    power_cut(cluster, "r1", "n1")
    status = paths.status("worker:0")
    status.started -= 3600.0
    paths.write_status(status)
    resumed(cluster, "r1", "n1")
    cluster.wait_until(lambda: stands(cluster, "r1", "worker:0") == (3, "running"))
    assert paths.state().restarts["worker:0"]["count"] == 1
