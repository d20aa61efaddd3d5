"""Test how a run is stopped if its programs resist. They get SIGTERM and, after the grace period,
SIGKILL. Then the agent checks that all processes of the run are gone. No other process is affected.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster
from support.stopwatch import Stopwatch
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.flock import FileLock, is_locked
from tfdeploy.agent.host.removal import remove
from tfdeploy.agent.run import liveness, task_processes
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.model.answers.failures import format_advice

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:                      # a child in a session of its own
    os.setsid()
    if os.fork() == 0:                  # and an orphan
        time.sleep(1000)
    time.sleep(1000)
if os.fork() == 0:                      # another that hides: no environment, own session, orphaned
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    os.execve("/bin/sh", ["sh", "-c", "trap '' TERM; while :; do sleep 1000; done"], {})
print("ready", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def bystander() -> Iterator[Any]:
    """Yield a process of the same user that has nothing to do with tfdeploy."""
    one = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield one
    one.kill()
    one.wait()


def launch_stubborn(cluster: Cluster, run: str = "r1") -> int:
    """Launch a run with a program that ignores SIGTERM. Return the pid of the task's supervisor
    (its parent process)."""
    cluster.write("stubborn.py", STUBBORN)
    cluster.launch(run, {"worker:0": ("n1", [sys.executable, "stubborn.py"])})
    cluster.wait_until(lambda: "ready" in cluster.log(run, "worker:0"))
    cluster.wait_until(lambda: len(all_of(cluster, run)) >= 5)
    return int(task_processes.find_live_supervisor(cluster.hosts["n1"].paths(run), "worker:0").pid)


def all_of(cluster: Cluster, run: str) -> list[processes.Identity]:
    pids, _ = task_processes.find_task_processes(cluster.hosts["n1"].paths(run), ["worker:0"])
    return [who for who in map(processes.read_identity, pids) if who is not None]


def test_a_program_that_will_not_end_is_gone_after_the_grace(
    hosts: NewCluster, bystander: Any
) -> None:
    cluster = hosts("n1")
    launch_stubborn(cluster)
    everyone = all_of(cluster, "r1")
    answer = cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.3)
    assert answer["survivors"] == [] and answer["seconds"] >= 0.3
    assert not any(processes.is_alive(who) for who in everyone)
    assert bystander.poll() is None
    status = cluster.status("r1", "worker:0")
    assert (status.outcome, status.reason) == ("stopped", "stopped by an operator")
    state = cluster.state("r1", "n1")
    assert state.stop_requested and state.first_death is None and state.phase == "ended"


def test_a_program_that_obeys_is_gone_at_once(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", ["sleep", "1000"]), "ps:0": ("n1", ["sleep", "1000"])})
    watch = Stopwatch()
    answer = cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=20.0)
    assert answer["survivors"] == [] and answer["seconds"] / watch.slowdown < 3
    watch = Stopwatch()
    again = cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=20.0)
    assert again["survivors"] == [] and again["seconds"] / watch.slowdown < 1
    assert (answer["had_ended"], again["had_ended"]) == (False, True)


def test_one_host_that_is_told_tells_the_others(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    cluster.launch(
        "r1", {"worker:0": ("n1", ["sleep", "1000"]), "worker:1": ("n2", ["sleep", "1000"])}
    )
    cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=5.0)
    assert cluster.wait_ended("r1", "n2")["n2"].stop_requested


def test_a_second_stop_may_have_less_patience(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    launch_stubborn(cluster)
    cluster.hosts["n1"].paths("r1").write_minder_order("stop", grace_s=1000.0)
    cluster.wait_until(lambda: cluster.state("r1", "n1").phase == "ending")
    watch = Stopwatch()
    answer = cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.0)
    assert answer["survivors"] == [] and answer["seconds"] / watch.slowdown < 5


@pytest.mark.parametrize("supervisor_too", [False, True])
def test_stop_works_with_its_helpers_dead(
    hosts: NewCluster, bystander: Any, supervisor_too: bool
) -> None:
    cluster = hosts("n1")
    launch_stubborn(cluster)
    paths = cluster.hosts["n1"].paths("r1")
    everyone = all_of(cluster, "r1")
    state = paths.state()
    supervisor = task_processes.find_live_supervisor(paths, "worker:0")
    processes.send_signal(
        processes.Identity(state.boot_id, state.minder_pid, state.minder_start_ticks),
        signal.SIGKILL,
    )
    if supervisor_too:
        hidden = {
            who.pid
            for who in everyone
            if task_processes.FOLDER_MARKER not in processes.read_environment(who.pid)
        }
        processes.send_signal(supervisor, signal.SIGKILL)
        everyone = [who for who in everyone if who.pid not in hidden]
        # The supervisor (the task's parent process) and the minder (which looks after the run) are
        # dead, and these processes have no marker in their environment. So nothing shows that they
        # belong to the run.
        for pid in hidden:
            who = processes.read_identity(pid)
            assert who is not None and processes.send_signal(who, signal.SIGKILL)
    answer = cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.2)
    assert answer["survivors"] == []
    assert not any(processes.is_alive(who) for who in everyone)
    assert cluster.status("r1", "worker:0").outcome == "stopped"
    assert cluster.state("r1", "n1").phase == "ended" and bystander.poll() is None


@pytest.mark.parametrize("frozen", ["minder", "supervisor", "both"])
def test_a_frozen_helper_keeps_no_stop(hosts: NewCluster, frozen: str) -> None:
    cluster = hosts("n1")
    supervisor = launch_stubborn(cluster)
    minder = cluster.state("r1", "n1").minder_pid
    for name, pid in (("minder", minder), ("supervisor", supervisor)):
        if frozen in (name, "both"):
            os.kill(pid, signal.SIGSTOP)
    assert stop_at_once(cluster) == []
    state = cluster.wait_ended("r1")["n1"]
    assert state.stop_requested and state.first_death is None


def test_a_stop_ends_what_stayed_of_a_dead_task_whose_supervisor_is_frozen(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1")
    os.kill(launch_stubborn(cluster), signal.SIGSTOP)
    os.kill(cluster.status("r1", "worker:0").pid, signal.SIGKILL)
    assert stop_at_once(cluster) == []
    assert cluster.wait_ended("r1")["n1"].stop_requested


def stop_at_once(cluster: Cluster) -> list[int]:
    """Stop r1 with a grace period of 0.2 s. Return the pids of its processes that survive."""
    answer = cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.2)
    assert answer["survivors"] == [] and not liveness.is_live(cluster.hosts["n1"].paths("r1"))
    return list(cluster.alive("r1"))


def test_what_is_seen_while_it_ends_is_no_survivor(
    hosts: NewCluster, bystander: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process must not count as a survivor of the stop, although it is still visible while
    the kernel frees its memory, which takes time on a busy host.
    """
    cluster = hosts("n1")
    launch_stubborn(cluster)
    members, looks = task_processes.find_task_processes, [0]

    def seen(paths: RunPaths, tasks: list[str]) -> Any:
        members_seen, table = members(paths, tasks)
        looks[0] += not members_seen
        return (members_seen or ({bystander.pid} if looks[0] < 3 else set())), table

    monkeypatch.setattr(task_processes, "find_task_processes", seen)
    assert (
        cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.0)["survivors"]
        == []
    )
    assert looks[0] >= 3


def test_what_a_killed_supervisor_left_to_the_minder_is_ended(
    hosts: NewCluster, bystander: Any
) -> None:
    cluster = hosts("n1")
    supervisor = launch_stubborn(cluster)
    everyone = all_of(cluster, "r1")
    assert any(
        task_processes.FOLDER_MARKER not in processes.read_environment(who.pid) for who in everyone
    )
    os.kill(supervisor, signal.SIGKILL)
    cluster.wait_ended("r1")
    assert not any(processes.is_alive(who) for who in everyone) and bystander.poll() is None


def remove_run(cluster: Cluster) -> None:
    """Remove the folder of r1. Try again if the removal fails, because the supervisor (the task's
    parent process) may still write to the folder.
    """
    cluster.wait_until(lambda: remove(cluster.hosts["n1"].paths("r1").run_dir))


def test_a_run_whose_folder_was_removed_is_still_stopped_and_no_other_may_begin_beside_it(
    hosts: NewCluster, bystander: Any
) -> None:
    cluster = hosts("n1")
    launch_stubborn(cluster)
    everyone = all_of(cluster, "r1")
    remove_run(cluster)
    with pytest.raises(VerbError) as caught:
        cluster.launch("r2", {"worker:0": ("n1", ["sleep", "1000"])})
    assert caught.value.code == "live_run" and "tfdeploy stop r1" in str(
        format_advice("n1", caught.value.advice, caught.value.details)
    )
    answer = cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.2)
    assert answer["survivors"] == []
    cluster.wait_until(lambda: not any(processes.is_alive(who) for who in everyone))
    assert bystander.poll() is None
    with pytest.raises(VerbError):
        cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.2)


def test_a_task_whose_folder_was_removed_ends_by_itself(hosts: NewCluster, bystander: Any) -> None:
    cluster = hosts("n1")
    launch_stubborn(cluster)
    everyone = all_of(cluster, "r1")
    remove_run(cluster)
    cluster.wait_until(lambda: not any(processes.is_alive(who) for who in everyone), 40.0)
    assert bystander.poll() is None


def test_another_run_on_the_same_host_is_untouched(
    hosts: NewCluster, tmp_path: Any, agent_dir: str
) -> None:
    cluster = hosts("n1", "n2")
    cluster.launch("r1", {"worker:0": ("n1", ["sleep", "1000"])})
    cluster.hosts["n2"].mesh_port = cluster.free_ports(1)[0]
    other = hosts("n3")
    other.launch("r1", {"worker:0": ("n3", ["sleep", "1000"])})
    cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=1.0)
    assert other.status("r1", "worker:0").state in ("starting", "running")
    assert len(other.alive("r1")) == 1


def test_an_identity_that_is_not_ours_is_not_touched(hosts: NewCluster, bystander: Any) -> None:
    """The recorded pid now belongs to another process, with another start time. This happens after
    a reboot, or when the kernel uses the pid again.
    """
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", ["sleep", "1000"])})
    paths = cluster.hosts["n1"].paths("r1")
    cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=1.0)
    status, state = paths.status("worker:0"), paths.state()
    cluster.wait_until(lambda: task_processes.find_live_supervisor(paths, "worker:0") is None)
    status.state, status.pid, status.supervisor_pid = "running", bystander.pid, bystander.pid
    paths.write_status(status)
    state.phase, state.boot_id = "committed", "another-boot"
    write_state(paths, state)
    answer = cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.0)
    assert answer["survivors"] == [] and bystander.poll() is None
    assert paths.status("worker:0").outcome == "lost" and paths.state().phase == "ended"


def write_state(paths: Any, state: Any) -> None:
    from tfdeploy.agent import wire
    from tfdeploy.agent.host.atomic import write_json

    write_json(paths.file("state.json"), wire.to_wire(state))


def test_an_unknown_run(hosts: NewCluster) -> None:
    with pytest.raises(VerbError) as caught:
        hosts("n1").hosts["n1"].call("run.stop", run="nothing", job="digits", grace_s=1.0)
    assert caught.value.code == "unknown_run"


def test_a_lock_on_a_disk_that_became_read_only_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "minder.lock")
    held = FileLock(path)
    assert held.acquire()
    real = os.open

    def read_only(name: Any, flags: int, *rest: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)
        return real(name, flags, *rest)

    monkeypatch.setattr(os, "open", read_only)
    assert is_locked(path)
    held.release()
    assert not is_locked(path)


def test_what_a_supervisor_had_half_written_goes_with_it(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", ["sleep", "1000"])})
    paths = cluster.hosts["n1"].paths("r1")
    partial, other = (
        Path(paths.task_dir("worker:0"), name)
        for name in (".status.json.4f04141b72ed.tmp", ".stop.json.1.tmp")
    )
    for path in (partial, other):
        path.write_text("{")
    os.kill(task_processes.find_live_supervisor(paths, "worker:0").pid, signal.SIGKILL)
    cluster.wait_ended("r1")
    # `partial` is removed. `other` stays, because another process may still be writing it.
    assert not partial.exists() and other.exists()


def test_a_supervisor_that_is_being_started_is_no_orphan(
    hosts: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A starting supervisor must be recognised in two difficult cases. During exec, a process has
    no command line for a moment. Another control machine may spell the workdir's path differently.
    """
    cluster = hosts("n1")
    launch_stubborn(cluster)
    paths = cluster.hosts["n1"].paths("r1")
    supervisor = task_processes.find_live_supervisor(paths, "worker:0").pid
    # The supervisor cannot be found by its status, as if it had not written a status yet.
    monkeypatch.setattr(task_processes, "find_live_supervisor", lambda *_: None)
    real, looks = processes.read_command_line, []

    def late_command_line(pid: int) -> bytes:
        looks.append(pid)
        return b"" if pid == supervisor and looks.count(pid) < 3 else real(pid)

    monkeypatch.setattr(processes, "read_command_line", late_command_line)
    assert supervisor not in task_processes.find_task_processes(paths, ["worker:0"])[0]
    spelt = paths.host_dir.replace("/digits/", "/./digits/")
    assert supervisor not in task_processes.find_task_processes(RunPaths(spelt), ["worker:0"])[0]
    monkeypatch.undo()
    cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.0)
