"""Test that real minders (the processes that look after a run, one on each host) report tasks that
stand still: frozen tasks, and tasks that wait for frozen ones. They must not report tasks that only
seem to stand still.
"""

from __future__ import annotations

import os
import signal
import sys

from support.agent.cluster import Cluster, NewCluster
from tfdeploy.agent import wire
from tfdeploy.agent.serve.run import status as run_status

WORK = ["sh", "-c", "while :; do echo step; sleep 0.2; done"]
SLEEP = ["sh", "-c", "exec sleep 1000"]
COMPUTE = [sys.executable, "-c", "while True: pass"]
WAITS = [
    "sh",
    "-c",
    "while :; do echo 'CreateSession still waiting for response from worker: "
    "/job:worker/replica:0/task:1'; sleep 0.3; done",
]


def health(cluster: Cluster, run: str, task: str) -> str | None:
    host = next(
        host
        for host in cluster.hosts.values()
        if task in [spec.task for spec in host.paths(run).part().tasks]
    )
    status: wire.TaskStatus = run_status.task_status(host.paths(run), task)
    return f"{status.health}: {status.health_reason}" if status.health else None


def freeze(cluster: Cluster, run: str, task: str) -> int:
    pid = cluster.wait_state(run, task, "running").pid
    os.kill(pid, signal.SIGSTOP)
    return int(pid)


def test_a_frozen_task_is_named_and_who_waits_for_it_says_so_until_it_goes_on(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1", "n2")
    cluster.launch("r1", {"worker:0": ("n1", SLEEP), "worker:1": ("n2", WORK)}, stall_after_s=3.0)
    pid = freeze(cluster, "r1", "worker:1")
    words = f"frozen: its process {pid} is stopped; on n2 `kill -CONT {pid}` continues it"
    cluster.wait_until(lambda: health(cluster, "r1", "worker:1") == f"stalled: {words}")
    cluster.wait_until(
        lambda: health(cluster, "r1", "worker:0") == f"stalled: waits for worker:1 on n2: {words}"
    )
    # tfdeploy only reports a stalled task and does not kill it.
    assert cluster.status("r1", "worker:1").state == "running"
    os.kill(pid, signal.SIGCONT)
    cluster.wait_until(lambda: health(cluster, "r1", "worker:1") is None)
    alone = "stalled: no output, no CPU use, no traffic, and no visible problem in other tasks"
    cluster.wait_until(lambda: health(cluster, "r1", "worker:0") == alone)


def test_who_computes_in_silence_and_a_server_that_waits_are_well(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    tasks = {"worker:0": ("n1", COMPUTE), "ps:0": ("n1", SLEEP), "worker:1": ("n2", SLEEP)}
    cluster.launch("r1", tasks, stall_after_s=3.0)
    # The other tasks are silent for as long as worker:1, but only worker:1 is reported as stalled.
    cluster.wait_until(lambda: health(cluster, "r1", "worker:1"))
    assert (health(cluster, "r1", "worker:0"), health(cluster, "r1", "ps:0")) == (None, None)


def test_a_worker_that_never_came_is_named_by_who_waits_for_it(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    tasks = {"worker:0": ("n1", WAITS), "worker:1": ("n2", SLEEP, {"port": None})}
    cluster.launch("r1", tasks, stall_after_s=3.0)
    expected = "stalled: waits for worker:1 on n2, which can be reached and does not answer"
    cluster.wait_until(lambda: health(cluster, "r1", "worker:0") == expected)


def test_under_restart_the_culprit_has_failed_and_starts_again(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    tasks = {"worker:0": ("n1", WORK), "worker:1": ("n2", WORK)}
    cluster.launch(
        "r1",
        tasks,
        stall_after_s=2.0,
        stall_action="restart",
        restart_max=3,
        recovery={"worker:1": ("alone", False)},
    )
    pid = freeze(cluster, "r1", "worker:1")
    cluster.wait_until(lambda: cluster.status("r1", "worker:1").attempt == 2)
    again = cluster.wait_state("r1", "worker:1", "running")
    assert again.pid != pid and cluster.status("r1", "worker:0").attempt == 1
    ended = cluster.state("r1", "n1").ended_tasks["worker:1"]
    assert ended["outcome"] == "failed" and ended["reason"].startswith(
        f"stalled: frozen: its process {pid} is stopped"
    )
    assert health(cluster, "r1", "worker:1") is None
