"""Test a run from its preparation to its end, on one host and on several hosts. The processes are
real, and no client is connected.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from support.agent.cluster import NewCluster
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.atomic import read_json
from tfdeploy.agent.host.removal import remove
from tfdeploy.agent.minder.supervisors import Supervisors
from tfdeploy.agent.run import reap, task_processes
from tfdeploy.agent.serve.run import ending as run_ending

FOREVER = ["sh", "-c", "exec sleep 1000"]
PS_AND_TWO = {
    "ps:0": ("n1", FOREVER),
    "worker:0": ("n2", ["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; echo trained"]),
    "worker:1": ("n3", ["sh", "-c", "exit 0"]),
}


def test_one_task_from_prepare_to_success(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", ["sh", "-c", "echo hello; echo oops >&2"])})
    state = cluster.wait_ended("r1")["n1"]
    status = cluster.status("r1", "worker:0")
    assert (status.state, status.outcome, status.exit_code, status.up) == (
        "ended",
        "succeeded",
        0,
        True,
    )
    assert (state.first_death, state.abort_reason, state.stop_requested) == (None, None, False)
    assert sorted(cluster.log("r1", "worker:0").split()) == ["hello", "oops"]
    assert cluster.alive("r1") == []


def test_ps_ends_after_the_deciding_task_with_nobody_attached(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2", "n3")
    cluster.launch("r1", PS_AND_TWO)
    cluster.wait_state("r1", "ps:0", "running")
    Path(cluster.hosts["n2"].paths("r1").cwd, "go").touch()
    states = cluster.wait_ended("r1")
    ps = cluster.status("r1", "ps:0")
    assert (ps.outcome, ps.reason) == ("stopped", "the deciding task succeeded")
    assert {
        state.first_death is None and state.abort_reason is None for state in states.values()
    } == {True}
    assert states["n1"].ended_tasks["worker:0"]["outcome"] == "succeeded"
    assert cluster.alive("r1") == []


def test_other_workers_have_their_grace_since_their_last_output(hosts: NewCluster) -> None:
    cluster, grace_s = hosts("n1", "n2"), 2.0
    talks = "while [ ! -e hush ]; do echo on; sleep 0.05; done; exec sleep 1000"
    tasks = {
        "worker:0": ("n1", ["sh", "-c", "exit 0"]),
        "worker:1": ("n2", ["sh", "-c", talks]),
        "ps:0": ("n1", FOREVER),
    }
    cluster.launch("r1", tasks, finish_grace_s=grace_s)
    decided = cluster.wait_until(lambda: cluster.state("r1", "n2").marks.get("decided"))
    cluster.wait_until(lambda: time.monotonic() > decided + 2 * grace_s)
    assert cluster.status("r1", "worker:1").state == "running"
    Path(cluster.hosts["n2"].paths("r1").cwd, "hush").touch()
    cluster.wait_ended("r1")
    assert cluster.status("r1", "worker:1").outcome == "stopped"
    assert cluster.status("r1", "ps:0").outcome == "stopped"
    assert cluster.state("r1", "n1").first_death is None


def test_commit_lost_on_one_host_is_heard_from_the_others(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2", "n3")
    cluster.prepare("r1", {task: (host, FOREVER) for task, (host, _) in PS_AND_TWO.items()})
    cluster.each("run.start", "r1")
    cluster.each("run.commit", "r1", but="n3")
    cluster.wait_until(lambda: cluster.state("r1", "n3").phase == "committed")


def test_started_and_not_committed_ends(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    tasks = {"worker:0": ("n1", FOREVER), "worker:1": ("n2", FOREVER)}
    cluster.prepare("r1", tasks, commit_within_s=2.0)
    # Instead of a call of the verb run.start on each host, the test writes the file that the verb
    # would write. Between two calls, the time limit for the commit might pass.
    for host in cluster.hosts.values():
        host.paths("r1").write_minder_order("start")
    states = cluster.wait_ended("r1")
    assert (
        states["n1"].abort_reason
        == "the run was started, but its launch was not confirmed within 2 s"
    )
    assert cluster.status("r1", "worker:0").outcome == "stopped"
    assert cluster.alive("r1") == []
    with pytest.raises(VerbError) as caught:
        cluster.hosts["n1"].call("run.commit", run="r1", job=cluster.job)
    assert caught.value.code == "ended" and "not confirmed" in caught.value.what


def test_prepared_and_not_started_ends(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    cluster.prepare(
        "r1", {"worker:0": ("n1", FOREVER), "worker:1": ("n2", FOREVER)}, start_within_s=5.0
    )
    cluster.hosts["n1"].paths("r1").write_minder_order("start")
    assert (
        cluster.wait_ended("r1", "n1")["n1"].abort_reason
        == "the run was prepared, but not started within 5 s"
    )
    never_began = cluster.hosts["n2"].paths("r1").run_dir
    cluster.wait_until(
        lambda: not os.path.exists(never_began), what="the minder of what never began removes it"
    )
    assert cluster.alive("r1") == []


def test_a_failed_task_fails_the_run_everywhere_and_is_named(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2", "n3")
    tasks = {
        "ps:0": ("n1", FOREVER),
        "worker:0": ("n2", FOREVER),
        "worker:1": ("n3", ["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; exit 3"]),
    }
    cluster.launch("r1", tasks)
    Path(cluster.hosts["n3"].paths("r1").cwd, "go").touch()
    states = cluster.wait_ended("r1")
    for state in states.values():
        assert state.first_death["task"] == "worker:1" and state.first_death["exit_code"] == 3
        assert state.abort_reason == "worker:1 on n3 failed with exit code 3"
    assert cluster.status("r1", "worker:0").outcome == "stopped"
    assert cluster.status("r1", "worker:1").outcome == "failed"


def test_a_ps_that_exits_0_fails_the_run(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.prepare("r1", {"ps:0": ("n1", ["sh", "-c", "exit 0"]), "worker:0": ("n1", FOREVER)})
    cluster.hosts["n1"].paths("r1").write_minder_order("start")
    state = cluster.wait_ended("r1")["n1"]
    assert state.abort_reason == "ps:0 on n1 ended too early, with exit code 0"


def test_a_program_that_cannot_start_fails_with_the_reason(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.write("orphan", "#!/no/such/interpreter\n")
    (cluster.hosts["n1"].release / "orphan").chmod(0o755)
    cluster.prepare("r1", {"worker:0": ("n1", ["./orphan"])})
    cluster.hosts["n1"].paths("r1").write_minder_order("start")
    assert "cannot start ./orphan" in cluster.wait_ended("r1")["n1"].abort_reason
    assert cluster.status("r1", "worker:0").outcome == "failed"


def test_abort_reaches_a_host_that_the_control_machine_does_not(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2", "n3")
    cluster.launch("r1", {task: (host, FOREVER) for task, (host, _) in PS_AND_TWO.items()})
    answer = cluster.hosts["n1"].call("run.abort", run="r1", job=cluster.job, reason="Ctrl-C")
    assert answer == {"survivors": []}
    assert {state.abort_reason for state in cluster.wait_ended("r1").values()} == {"Ctrl-C"}


def test_a_long_reason_is_the_same_everywhere(hosts: NewCluster) -> None:
    """All hosts must store the same text. Minders (the processes that look after a run, one on each
    host) exchange messages until their knowledge is equal, so with different texts they never stop.
    """
    cluster = hosts("n1", "n2")
    cluster.launch("r1", {"worker:0": ("n1", FOREVER), "worker:1": ("n2", FOREVER)})
    cluster.hosts["n1"].call(
        "run.abort", run="r1", job=cluster.job, reason="x" * 300 + " and so on"
    )
    cluster.wait_ended("r1")
    said = [
        read_json(host.paths("r1").file("knowledge.json")) or {} for host in cluster.hosts.values()
    ]
    assert said[0]["abort"] == said[1]["abort"]


def test_purge_leaves_nothing(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    cluster.prepare("r1", {"worker:0": ("n1", FOREVER), "worker:1": ("n2", FOREVER)})
    for answer in cluster.each("run.abort", "r1", reason="rolled back", purge=True).values():
        # The answer is {} if this host has already learned of the abort from the other host, and
        # has removed the run.
        assert answer in ({"survivors": []}, {})
    # A minder that learned of the abort from the other host may still be removing the run.
    for host in cluster.hosts.values():
        cluster.wait_until(
            lambda host=host: not os.path.exists(host.paths("r1").run_dir), what="it is removed"
        )
    assert set(cluster.each("run.abort", "r1", reason="again", purge=True)["n1"]) <= {"survivors"}


def test_an_abort_of_what_its_minder_is_just_removing_is_no_error(
    hosts: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = hosts("n1")
    cluster.prepare("r1", {"worker:0": ("n1", FOREVER)})
    paths = cluster.hosts["n1"].paths("r1")
    minder = task_processes.read_minder(paths)
    assert minder is not None and processes.send_signal(minder, signal.SIGKILL)

    def is_gone_with_the_folder(lock: str) -> bool:
        shutil.rmtree(paths.run_dir)
        return False

    monkeypatch.setattr(run_ending, "is_locked", is_gone_with_the_folder)
    cluster.wait_until(lambda: not processes.is_alive(minder))
    assert cluster.hosts["n1"].call("run.abort", run="r1", job=cluster.job, purge=True) == {}
    assert not os.path.exists(paths.run_dir)


def test_a_launch_that_is_refused_does_not_take_back_the_run_that_has_its_name(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1")
    cluster.prepare("r1", {"worker:0": ("n1", FOREVER)})
    (host,) = cluster.hosts.values()
    own = host.paths("r1").part().plan_digest
    call = {"run": "r1", "job": cluster.job, "reason": "rolled back", "purge": True}
    assert host.call("run.abort", **call, plan_digest="of another plan") == {}
    assert cluster.state("r1", "n1").phase == "prepared"
    assert host.call("run.abort", **call, plan_digest=own) == {"survivors": []}
    assert not os.path.exists(host.paths("r1").run_dir)


def test_a_killed_minder_is_replaced_and_the_run_goes_on(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2", "n3")
    cluster.launch("r1", PS_AND_TWO)
    cluster.wait_state("r1", "ps:0", "running")
    first = cluster.state("r1", "n1")
    who = processes.Identity(first.boot_id, first.minder_pid, first.minder_start_ticks)
    assert processes.send_signal(who, signal.SIGKILL)
    cluster.wait_until(lambda: cluster.state("r1", "n1").minder_pid != first.minder_pid)
    Path(cluster.hosts["n2"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")
    assert cluster.status("r1", "ps:0").outcome == "stopped"
    assert cluster.state("r1", "n1").first_death is None


def test_a_killed_supervisor_takes_its_task_along(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    orphan = "(setsid sh -c 'sleep 999' </dev/null >/dev/null 2>&1 &) ; exec sleep 1000"
    cluster.launch("r1", {"worker:0": ("n1", ["sh", "-c", orphan]), "ps:0": ("n1", FOREVER)})
    cluster.wait_state("r1", "worker:0", "running")
    assert processes.send_signal(
        task_processes.find_live_supervisor(cluster.hosts["n1"].paths("r1"), "worker:0"),
        signal.SIGKILL,
    )
    state = cluster.wait_ended("r1")["n1"]
    status = cluster.status("r1", "worker:0")
    assert (status.state, status.outcome, status.reason) == (
        "lost",
        "lost",
        "its supervisor was killed",
    )
    assert state.first_death["task"] == "worker:0"
    assert cluster.alive("r1") == []


def test_what_a_task_left_behind_is_ended_with_it(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch(
        "r1", {"worker:0": ("n1", ["sh", "-c", "setsid sleep 999 & sleep 998 & echo done"])}
    )
    cluster.wait_ended("r1")
    assert cluster.status("r1", "worker:0").outcome == "succeeded"
    assert cluster.alive("r1") == []


def test_files_left_outside_keep_are_named_and_secrets_are_gone(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.write(
        "train.sh",
        "echo $TOKEN | wc -c; echo x > keep/a; echo x > out.txt; echo y >> notes; cat keep/seed",
    )
    cluster.write("keep/seed", "seeded")
    cluster.write("notes", "n")
    cluster.launch(
        "r1", {"worker:0": ("n1", ["sh", "train.sh"])}, keep=["keep"], secrets={"TOKEN": "s3cret"}
    )
    state = cluster.wait_ended("r1")["n1"]
    assert state.left_files == ["notes", "out.txt"]
    assert cluster.log("r1", "worker:0") == "7\nseeded"
    folder = Path(cluster.hosts["n1"].paths("r1").host_dir)
    assert not [
        path for path in folder.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()
    ]
    assert (
        Path(cluster.hosts["n1"].context.workdir) / cluster.job / "keep" / "keep" / "a"
    ).exists()
    assert (cluster.hosts["n1"].release / "notes").read_text() == "n"


def test_a_host_that_falls_silent_keeps_no_ps_alive(hosts: NewCluster) -> None:
    """worker:0 decides whether the run succeeds. Once worker:0 has finished, the ps must end. This
    holds even if the host of worker:1 no longer answers, like a host that has died.
    """
    cluster = hosts("n1", "n2", "n3")
    cluster.launch(
        "r1",
        dict(PS_AND_TWO, **{"worker:1": ("n3", FOREVER)}),
        finish_grace_s=1.0,
        stop_grace_s=0.5,
    )
    cluster.wait_state("r1", "ps:0", "running")
    away = cluster.hosts["n3"].paths("r1")
    state = away.state()
    assert processes.send_signal(
        task_processes.find_live_supervisor(away, "worker:1"), signal.SIGSTOP
    )
    assert processes.send_signal(
        processes.Identity(state.boot_id, state.minder_pid, state.minder_start_ticks),
        signal.SIGSTOP,
    )
    Path(cluster.hosts["n2"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1", "n1", "n2")
    assert cluster.status("r1", "ps:0").outcome == "stopped"
    processes.send_signal(task_processes.find_live_supervisor(away, "worker:1"), signal.SIGCONT)
    processes.send_signal(
        processes.Identity(state.boot_id, state.minder_pid, state.minder_start_ticks),
        signal.SIGCONT,
    )
    cluster.wait_ended("r1", "n3")


@pytest.mark.parametrize("left", ["the folder", "nothing"])
def test_a_minder_whose_files_are_removed_ends_and_makes_no_new_ones(
    hosts: NewCluster, left: str
) -> None:
    """`rm -rf` removes files first, and then the folder that contains them. If the minder (the
    process that looks after the run) reads the folder in between, it finds a task without a
    supervisor (the parent process of the task). It must not start one.
    """
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", FOREVER)})
    paths = cluster.hosts["n1"].paths("r1")
    minder = task_processes.read_minder(paths)
    assert minder is not None
    for each in os.listdir(paths.host_dir):
        remove(paths.file(each))
    if left == "nothing":
        cluster.wait_until(lambda: remove(paths.run_dir))
    cluster.wait_until(lambda: not processes.is_alive(minder))
    assert not os.path.lexists(paths.file("tasks"))
    # The verb fails with unknown_run if the supervisor has already ended the task.
    with suppress(VerbError):
        cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.0)
    cluster.wait_until(lambda: not cluster.alive("r1"))


def test_the_folder_of_a_run_that_was_removed_is_not_made_again(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.prepare("r1", {"worker:0": ("n1", FOREVER)})
    paths = cluster.hosts["n1"].paths("r1")
    supervisors = Supervisors(paths, paths.part())
    shutil.rmtree(paths.run_dir)
    with pytest.raises(OSError):
        supervisors.start("worker:0", 1, 1)
    with pytest.raises(OSError):
        reap.reap_task(paths, "worker:0", "failed", "its supervisor died")
    assert not os.path.lexists(paths.run_dir)
