"""Test the minder (the process that looks after a run on a host) with its supervisors (the parent
processes of tasks). Cases are the time between the start of a supervisor and its first status, and
a supervisor that the system refuses to start.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import Any

from support.agent.cluster import NewCluster
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.mesh.shared_state import KnownRunState
from tfdeploy.agent.minder.actions import HostRunView
from tfdeploy.agent.minder.restart import decide_restart_actions
from tfdeploy.agent.minder.supervisors import Supervisors

FOREVER = ["sh", "-c", "exec sleep 1000"]
ROUND = {
    "n": 2,
    "time": 1.0,
    "task": "worker:0",
    "reason": "died",
    "count": 1,
    "quick": 0,
    "delay_s": 0.0,
}


def test_what_was_just_started_is_of_the_gangs_new_round_and_not_ended_as_old(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1")
    cluster.prepare(
        "r1", {"worker:0": ("n1", FOREVER)}, recovery={"worker:0": ("gang", True)}, restart_max=3
    )
    paths = cluster.hosts["n1"].paths("r1")
    supervisors = Supervisors(paths, paths.part())
    assert supervisors.start("worker:0", 2, 2)
    # The new supervisor has not written its first status yet.
    own = supervisors.observe_tasks()
    assert (own["worker:0"].status.attempt, own["worker:0"].status.round) == (2, 2) and own[
        "worker:0"
    ].is_supervised
    known = KnownRunState(committed=True, round=ROUND, stands={"n1": (2, 3)})
    assert (
        decide_restart_actions(
            HostRunView(
                part=paths.part(),
                phase="committed",
                known=known,
                local_tasks=own,
                now=0.0,
                time_by_event={},
                orders={},
            )
        )
        == []
    )
    cluster.wait_until(lambda: paths.status("worker:0").round == 2)
    cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.0)
    cluster.wait_until(
        lambda: (
            supervisors.reap_children(),
            not supervisors.observe_tasks()["worker:0"].is_supervised,
        )[1]
    )


def test_words_about_waiting_are_no_sign_of_life_once_the_run_is_decided(hosts: NewCluster) -> None:
    """Once the result of the run is known, a task that has printed nothing for 60 s is ended.
    TensorFlow prints a line every 10 s as long as it waits. If such lines counted as output, the
    task would never be ended.
    """
    cluster = hosts("n1")
    cluster.prepare("r1", {"worker:0": ("n1", FOREVER)})
    paths = cluster.hosts["n1"].paths("r1")
    supervisors, log = Supervisors(paths, paths.part()), Path(paths.task_dir("worker:0"), "out.log")

    def observe(decided: bool = True, says: str = "") -> Any:
        with log.open("a") as file:
            file.write(says)
        return supervisors.observe_tasks(decided)["worker:0"]

    waits = (
        "I0000 00:00:1 7 master.cc:278] CreateSession still waiting for response from worker: "
        "/job:worker/replica:0/task:%d\n"
    )
    assert observe(False, "step 1\n").quiet_s == 0.0
    quiet = observe().quiet_s
    assert observe(says=waits % 1).awaited_tasks == ("worker:1",)
    again = observe(says=waits % 2)
    assert again.awaited_tasks == ("worker:1", "worker:2") and again.quiet_s > quiet
    own = observe(says="step 2\n")
    assert (own.awaited_tasks, own.quiet_s) == ((), 0.0)


def test_programs_are_told_when_the_run_is_decided(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    tasks = {"worker:0": ("n1", ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"])}
    waits = 'until [ -e "$TFDEPLOY_TASK_FOLDER/decided" ]; do sleep 0.02; done; echo told'
    cluster.launch("r1", {**tasks, "worker:1": ("n1", ["sh", "-c", waits])}, finish_grace_s=20.0)
    assert not os.path.exists(cluster.hosts["n1"].paths("r1").file("decided"))
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")
    assert cluster.log("r1", "worker:1") == "told\n"


def test_who_only_looks_at_a_lock_keeps_nobody_from_taking_it(tmp_path: Path) -> None:
    """Test that a supervisor gets its lock even if another process briefly checks the lock at the
    same time.

    A supervisor that finds its own lock file locked exits, and its task then counts as lost.
    """
    path = str(tmp_path / "lock")
    looks = os.open(path, os.O_RDWR | os.O_CREAT)
    # Another process checks the lock. To do so, it holds a shared lock for half a second.
    fcntl.flock(looks, fcntl.LOCK_SH)
    later = threading.Timer(0.5, os.close, (looks,))
    later.start()
    held = FileLock(path)
    assert held.acquire()
    later.join()
    assert not FileLock(path).acquire()
    held.release()


def test_a_start_that_the_system_refuses_is_tried_again(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.prepare("r1", {"worker:0": ("n1", FOREVER)})
    paths = cluster.hosts["n1"].paths("r1")
    minder = paths.state().minder_pid
    in_the_way = os.path.join(paths.task_dir("worker:0"), "supervisor.log")
    os.mkdir(in_the_way)
    paths.write_minder_order("start", time=1.0)
    cluster.wait_until(lambda: paths.state().phase == "started")
    cluster.wait_until(lambda: "supervisor.log" in Path(paths.file("journal")).read_text())
    os.rmdir(in_the_way)
    cluster.wait_state("r1", "worker:0", "running")
    assert paths.state().minder_pid == minder and paths.status("worker:0").attempt == 1
