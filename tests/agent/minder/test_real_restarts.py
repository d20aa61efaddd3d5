"""Test that a task restarts alone, or together with all tasks of its gang (the tasks that must
restart together). The processes are real, on several hosts, and no client is connected.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster
from tfdeploy.agent import layout
from tfdeploy.agent.call import Call
from tfdeploy.agent.host.atomic import read_json
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.run import task_processes
from tfdeploy.agent.serve.run import follow as run_follow
from tfdeploy.model.job import DEFAULT_METRICS

FOREVER = ["sh", "-c", "exec sleep 1000"]
QUICKLY: dict[str, Any] = {"restart_max": 3, "restart_backoff_s": [0.1, 0.4]}
# These lines wait until the test creates the file `go`. A task must not fail before the run is
# committed, because then it is not started again.
AWAIT_GO = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
# While this program lives, a file in $SHARED has its pid. The program prints the pids of the other
# tasks from their files in $SHARED, and exits with code 0 once the file `go` exists.
MEMBER = """
echo attempt $TFDEPLOY_TASK_ATTEMPT; cat "$SHARED"/* 2>/dev/null
echo $$ > "$SHARED/$TFDEPLOY_TASK_INDEX"
trap 'rm "$SHARED/$TFDEPLOY_TASK_INDEX"; exit 1' TERM
while [ ! -e "$SHARED/../go" ]; do sleep 0.05; done
"""


def killed(cluster: Cluster, run: str, task: str) -> None:
    # The program may run before its supervisor has written the pid.
    cluster.wait_until(lambda: cluster.status(run, task).pid is not None)
    os.kill(cluster.status(run, task).pid, signal.SIGKILL)


def attempt(cluster: Cluster, run: str, task: str) -> tuple[int, str]:
    status = cluster.status(run, task)
    return status.attempt, status.state


def test_a_task_starts_again_alone_and_the_run_ends_well(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    ends = [
        "sh",
        "-c",
        "echo attempt $TFDEPLOY_TASK_ATTEMPT; while [ ! -e go ]; do sleep 0.02; done",
    ]
    tasks = {"ps:0": ("n1", FOREVER), "worker:0": ("n2", ends), "worker:1": ("n1", ends)}
    cluster.launch("r1", tasks, recovery=dict.fromkeys(tasks, ("alone", False)), **QUICKLY)
    for task in tasks:
        cluster.wait_state("r1", task, "running")
        killed(cluster, "r1", task)
        cluster.wait_until(lambda task=task: attempt(cluster, "r1", task) == (2, "running"))
    for host in cluster.hosts.values():
        Path(host.paths("r1").cwd, "go").touch()
    states = cluster.wait_ended("r1")
    assert {
        state.first_death is None and state.abort_reason is None for state in states.values()
    } == {True}
    assert cluster.log("r1", "worker:0").split("\n") == ["attempt 1", "attempt 2", ""]
    assert cluster.alive("r1") == []


@pytest.mark.parametrize("alone", [True, False])
def test_the_same_error_twice_before_a_step_ends_the_run(hosts: NewCluster, alone: bool) -> None:
    """If a program fails twice in the same way before its first step, it is not started a third
    time. This holds for a task that restarts alone and for a gang (tasks that restart together).
    """
    cluster = hosts("n1", "n2")
    cluster.write("train.py", f"{AWAIT_GO}{{}}['shard']\n")
    tasks = {"ps:0": ("n1", FOREVER), "worker:0": ("n2", [sys.executable, "train.py"])}
    recovery = dict.fromkeys(tasks, ("alone", False) if alone else ("gang", True))
    cluster.launch("r1", tasks, recovery=recovery, same_error_ends=True, **QUICKLY)
    Path(cluster.hosts["n2"].paths("r1").cwd, "go").touch()
    words = (
        "worker:0 on n2 gave up: attempts 1 and 2 failed with the same error "
        "before their first step: KeyError: 'shard' (train.py:3)"
    )
    assert {state.abort_reason for state in cluster.wait_ended("r1").values()} == {words}
    assert attempt(cluster, "r1", "worker:0") == (2, "ended")


@pytest.mark.parametrize(
    "line",
    [
        "print('step 3 loss 0.5')",
        "open('checkpoints/net.pt', 'w')",
        "raise ConnectionResetError",
        "raise OSError(28, 'full')",
    ],
)
def test_an_error_after_a_step_or_of_the_network_may_not_come_again(
    hosts: NewCluster, line: str
) -> None:
    cluster = hosts("n1")
    cluster.write("train.py", f"{AWAIT_GO}{line}\n{{}}['shard']\n")
    cluster.launch(
        "r1",
        {"worker:0": ("n1", [sys.executable, "train.py"])},
        recovery={"worker:0": ("alone", False)},
        same_error_ends=True,
        keep=["checkpoints"],
        metrics=DEFAULT_METRICS,
        **dict(QUICKLY, restart_max=2),
    )
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    assert "after 2 restarts (restart.max)" in (cluster.wait_ended("r1")["n1"].abort_reason or "")


def test_who_watches_is_told_of_a_death_once(hosts: NewCluster) -> None:
    """A client that watches the run is told of a task's death only once, even while the task's next
    supervisor (its parent process) has started but has not written a status yet.
    """
    cluster = hosts("n1")
    cluster.launch(
        "r1", {"worker:0": ("n1", FOREVER)}, recovery={"worker:0": ("alone", False)}, **QUICKLY
    )
    told: list[tuple[int, str]] = []
    call = Call(
        cluster.hosts["n1"].context,
        {"run": "r1", "job": cluster.job},
        item=lambda header, blob: (
            told.append((header["task"]["attempt"], header["task"]["state"]))
            if "task" in header
            else None
        ),
    )
    watcher = threading.Thread(daemon=True, target=run_follow.VERBS["run.watch"], args=(call,))
    watcher.start()
    for number in (1, 2, 3):
        cluster.wait_until(lambda number=number: (number, "running") in told)
        killed(cluster, "r1", "worker:0")
    cluster.wait_until(lambda: (4, "running") in told)
    cluster.each("run.stop", "r1")
    watcher.join(120)
    for number in (1, 2, 3):
        states = [state for attempt, state in told if attempt == number]
        assert "ended" not in states[states.index("pending") :], told


def test_a_crash_loop_gives_up_after_its_budget(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    fails = [
        "sh",
        "-c",
        "echo again; [ $TFDEPLOY_TASK_ATTEMPT -gt 1 ] || while [ ! -e go ]; do sleep 0.02; done; "
        "exit 3",
    ]
    tasks = {"worker:0": ("n1", FOREVER), "worker:1": ("n2", fails)}
    cluster.launch("r1", tasks, recovery=dict.fromkeys(tasks, ("alone", False)), **QUICKLY)
    Path(cluster.hosts["n2"].paths("r1").cwd, "go").touch()
    states = cluster.wait_ended("r1")
    status = cluster.status("r1", "worker:1")
    assert (status.attempt, status.outcome, status.reason) == (
        4,
        "gave_up",
        "exit code 3, after 3 restarts (restart.max)",
    )
    assert {(state.first_death or {}).get("task") for state in states.values()} == {"worker:1"}
    assert "worker:1 on n2 gave up: exit code 3" in str(states["n1"].abort_reason)
    assert cluster.status("r1", "worker:0").outcome == "stopped"
    assert cluster.log("r1", "worker:1") == "again\n" * 4


@pytest.mark.parametrize("victim", ["worker:0", "worker:2"])
def test_a_gang_starts_again_together_when_all_old_processes_are_gone(
    hosts: NewCluster, tmp_path: Path, victim: str
) -> None:
    cluster = hosts("n1", "n2", "n3")
    shared = tmp_path / "shared"
    shared.mkdir()
    env = {"env": {"SHARED": str(shared)}}
    tasks = {f"worker:{n}": (f"n{n + 1}", ["sh", "-c", MEMBER], env) for n in range(3)}
    cluster.launch("r1", tasks, recovery=dict.fromkeys(tasks, ("gang", True)), **QUICKLY)
    cluster.wait_until(lambda: len(list(shared.iterdir())) == 3)
    index = victim[-1]
    # A killed process cannot remove its pid file, so the test removes the file.
    (shared / index).unlink()
    killed(cluster, "r1", victim)
    for task in tasks:
        cluster.wait_until(lambda task=task: attempt(cluster, "r1", task) == (2, "running"), 20.0)
    cluster.wait_until(lambda: len(list(shared.iterdir())) == 3)
    old = {int(cluster.log("r1", task).splitlines()[0].split()[1]) for task in tasks}
    assert old == {1}
    (tmp_path / "go").touch()
    states = cluster.wait_ended("r1")
    assert {state.first_death is None for state in states.values()} == {True}
    for task in tasks:
        lines = cluster.log("r1", task).splitlines()
        seen = [line for line in lines[lines.index("attempt 2") + 1 :] if line.isdigit()]
        now = {cluster.status("r1", other).pid for other in tasks}
        # Each pid that the task has printed since then belongs to the task's own round, that is, to
        # a process that restarted together with the task.
        assert {int(pid) for pid in seen} <= now


def test_the_keep_of_the_chief_is_on_every_disk_before_the_gang_starts_again(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1", "n2")
    keeps = """
        if [ -e ckpt/step ]; then echo from $(cat ckpt/step) $(cat ckpt/checkpoint); fi
        mkdir -p ckpt/deep
        if [ $TFDEPLOY_TASK_INDEX = 0 ]; then echo 7 > ckpt/step; echo new > ckpt/checkpoint
             ln -sfn deep ckpt/latest; head -c 3000000 /dev/zero > ckpt/deep/big
        else echo mine > ckpt/deep/checkpoint; fi
        while [ ! -e go ]; do sleep 0.02; done
    """
    for host in cluster.hosts.values():
        os.makedirs(layout.keep_dir(host.context.workdir, cluster.job, "ckpt"))
    tasks = {"worker:0": ("n1", ["sh", "-c", keeps]), "worker:1": ("n2", ["sh", "-c", keeps])}
    recovery = dict.fromkeys(tasks, ("gang", True))
    cluster.launch("r1", tasks, recovery=recovery, keep=["ckpt"], supply_from="n1", **QUICKLY)
    mine = Path(layout.keep_dir(cluster.hosts["n2"].context.workdir, cluster.job, "ckpt"))
    theirs = Path(layout.keep_dir(cluster.hosts["n1"].context.workdir, cluster.job, "ckpt"))
    written = [(mine / "deep" / "checkpoint", 5), (theirs / "deep" / "big", 3000000)]
    cluster.wait_until(
        lambda: all(path.exists() and path.stat().st_size == size for path, size in written)
    )
    killed(cluster, "r1", "worker:1")
    for task in tasks:
        cluster.wait_until(lambda task=task: attempt(cluster, "r1", task) == (2, "running"), 20.0)
    cluster.wait_until(lambda: cluster.log("r1", "worker:1") == "from 7 new\n")
    assert (mine / "deep" / "big").stat().st_size == 3000000
    assert os.readlink(mine / "latest") == "deep"
    assert (mine / "deep" / "checkpoint.older").read_text() == "mine\n"
    for host in cluster.hosts.values():
        Path(host.paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")


def test_a_stop_wins_against_a_restart_in_flight(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    tasks = {"worker:0": ("n1", FOREVER), "worker:1": ("n2", FOREVER)}
    cluster.launch(
        "r1",
        tasks,
        recovery=dict.fromkeys(tasks, ("gang", True)),
        restart_max=3,
        restart_backoff_s=[0.0, 0.0],
    )
    cluster.wait_state("r1", "worker:1", "running")
    killed(cluster, "r1", "worker:1")
    cluster.each("run.stop", "r1", grace_s=0.5)
    states = cluster.wait_ended("r1")
    assert {state.stop_requested for state in states.values()} == {True}
    assert cluster.alive("r1") == []


def test_a_task_that_waits_to_start_again_is_no_failure_when_the_run_is_stopped(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1", "n2")
    tasks = {"worker:0": ("n1", FOREVER), "worker:1": ("n2", FOREVER)}
    cluster.launch(
        "r1",
        tasks,
        recovery=dict.fromkeys(tasks, ("alone", False)),
        restart_max=3,
        restart_backoff_s=[60.0, 60.0],
    )
    cluster.wait_state("r1", "worker:1", "running")
    killed(cluster, "r1", "worker:1")
    cluster.wait_until(lambda: "worker:1" in cluster.state("r1", "n2").again)
    cluster.each("run.stop", "r1", grace_s=0.5)
    states = cluster.wait_ended("r1")
    assert {state.first_death is None for state in states.values()} == {True}


def test_a_minder_that_dies_loses_neither_the_count_nor_the_round(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    tasks = {"worker:0": ("n1", FOREVER), "worker:1": ("n2", FOREVER)}
    cluster.launch("r1", tasks, recovery=dict.fromkeys(tasks, ("gang", True)), **QUICKLY)
    for round_number in (2, 3):
        cluster.wait_state("r1", "worker:1", "running")
        before = cluster.state("r1", "n2").minder_pid
        os.kill(before, signal.SIGKILL)
        killed(cluster, "r1", "worker:1")
        for task in tasks:
            wanted = (round_number, "running")
            cluster.wait_until(
                lambda task=task, wanted=wanted: attempt(cluster, "r1", task) == wanted, 20.0
            )
        assert cluster.state("r1", "n2").minder_pid != before
    assert cluster.status("r1", "worker:0").round == 3
    assert not task_processes.find_task_processes(cluster.hosts["n1"].paths("r1"), ["worker:1"])[0]


def test_a_gang_does_not_wait_for_a_host_that_has_ended_well_meanwhile(hosts: NewCluster) -> None:
    """worker:1 dies on n1, while n1 does not know yet that the run has succeeded on n2. So n1
    announces that all tasks restart together (as a gang). Then n1 learns that the run has
    succeeded. It ends the run, and does not wait until n2 is ready for the restart.
    """
    cluster = hosts("n1", "n2")
    ends = ["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"]
    tasks = {"worker:0": ("n2", ends), "worker:1": ("n1", FOREVER)}
    cluster.launch("r1", tasks, recovery=dict.fromkeys(tasks, ("gang", True)), **QUICKLY)
    cluster.wait_state("r1", "worker:1", "running")
    cut_off, done = cluster.state("r1", "n1").minder_pid, cluster.state("r1", "n2").minder_pid
    os.kill(cut_off, signal.SIGSTOP)
    Path(cluster.hosts["n2"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1", "n2")
    os.kill(done, signal.SIGSTOP)
    killed(cluster, "r1", "worker:1")
    cluster.wait_state("r1", "worker:1", "ended")
    os.kill(cut_off, signal.SIGCONT)
    cluster.wait_until(
        lambda: (read_json(cluster.hosts["n1"].paths("r1").file("knowledge.json")) or {})["round"]
    )
    os.kill(done, signal.SIGCONT)
    states = cluster.wait_ended("r1")
    assert {
        state.first_death is None and state.abort_reason is None for state in states.values()
    } == {True}
    assert cluster.status("r1", "worker:1").attempt == 1 and cluster.alive("r1") == []


def test_a_minder_that_dies_while_no_task_runs_on_its_host_is_replaced(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    tasks = {"worker:0": ("n1", FOREVER), "worker:1": ("n2", FOREVER)}
    cluster.launch(
        "r1",
        tasks,
        recovery=dict.fromkeys(tasks, ("alone", False)),
        restart_max=3,
        restart_backoff_s=[4.0, 4.0],
    )
    cluster.wait_state("r1", "worker:1", "running")
    killed(cluster, "r1", "worker:1")
    cluster.wait_until(lambda: "worker:1" in cluster.state("r1", "n2").again)
    cluster.wait_until(
        lambda: not is_locked(cluster.hosts["n2"].paths("r1").supervisor_lock("worker:1"))
    )
    os.kill(cluster.state("r1", "n2").minder_pid, signal.SIGKILL)
    cluster.wait_until(lambda: attempt(cluster, "r1", "worker:1") == (2, "running"), 30.0)
