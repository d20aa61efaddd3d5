"""Test the verb run.prepare, which prepares a run completely or not at all, and only once. If the
verb refuses, its error names the cause.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster
from support.needs import require
from tfdeploy.agent import layout
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import processes
from tfdeploy.agent.ownership import UntrustedPath
from tfdeploy.agent.run import workdir
from tfdeploy.agent.serve.run import minder_start
from tfdeploy.agent.serve.run import prepare as run_prepare
from tfdeploy.model.answers.failures import format_advice

FOREVER = ["sleep", "1000"]
TASKS = {"worker:0": ("n1", FOREVER)}


def refused(cluster: Cluster, run: str, tasks: Any = TASKS, **fields: Any) -> VerbError:
    with pytest.raises(VerbError) as caught:
        cluster.prepare(run, tasks, **fields)
    return caught.value


def nothing_left(cluster: Cluster, run: str) -> bool:
    return not os.path.exists(cluster.hosts["n1"].paths(run).run_dir)


def test_the_same_again_is_the_same_answer_and_another_plan_is_not(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.prepare("r1", TASKS)
    minder = cluster.state("r1", "n1").minder_pid
    cluster.prepare("r1", TASKS)
    assert cluster.state("r1", "n1").minder_pid == minder
    assert refused(cluster, "r1", plan_digest="other").code == "exists"
    cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.0)
    assert refused(cluster, "r1").code == "exists"


def test_twenty_at_once_are_one(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    answers: list[Any] = []
    part = cluster.parts("r1", TASKS)["n1"]
    other = cluster.parts("r2", TASKS)["n1"]

    def one(given: Any) -> None:
        try:
            answers.append(
                cluster.hosts["n1"].call(
                    "run.prepare", part=given, plan={}, secrets={}, certs=cluster.certs["n1"]
                )
            )
        except VerbError as error:
            answers.append(error.code)

    cluster.runs += ["r1", "r2"]
    threads = [
        threading.Thread(daemon=True, target=one, args=(part if index % 2 else other,))
        for index in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count({"prepared": True}) == 10 and answers.count("live_run") == 10


def test_the_same_asked_again_waits_for_the_first_however_slow(
    hosts: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = hosts("n1")
    monkeypatch.setattr(minder_start, "LOCK_WAIT_S", 0.1)
    part = cluster.parts("r1", TASKS)["n1"]
    begun, go_on, answers = threading.Event(), threading.Event(), []
    whole = workdir.make_cwd

    def slow(*words: Any) -> None:
        begun.set()
        assert go_on.wait(120)
        monkeypatch.setattr(minder_start, "LOCK_WAIT_S", 20.0)
        whole(*words)

    monkeypatch.setattr(workdir, "make_cwd", slow)

    def one() -> None:
        answers.append(
            cluster.hosts["n1"].call(
                "run.prepare", part=part, plan={}, secrets={}, certs=cluster.certs["n1"]
            )
        )

    cluster.runs += ["r1"]
    threads = [threading.Thread(daemon=True, target=one) for _ in range(2)]
    threads[0].start()
    assert begun.wait(120)
    threads[1].start()
    # A run.prepare of another run gives up earlier than the second run.prepare of r1.
    assert refused(cluster, "r2").code == "locked"
    assert threads[1].is_alive()
    go_on.set()
    for thread in threads:
        thread.join()
    assert answers == [{"prepared": True}] * 2


def test_hosts_that_share_a_workdir_clear_away_a_run_that_was_rolled_back(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1", "n2")
    cluster.hosts["n2"].context = cluster.hosts["n1"].context
    cluster.write("train.sh", "old")
    both = {"worker:0": ("n1", FOREVER), "worker:1": ("n2", FOREVER)}
    cluster.prepare("r1", both)
    cluster.hosts["n1"].paths("r1").write_minder_order("start")
    cluster.hosts["n2"].paths("r1").write_minder_order("start")
    for host in cluster.hosts.values():
        cluster.wait_until(lambda host=host: host.paths("r1").state().phase == "started")
    for host in cluster.hosts.values():
        host.paths("r1").write_minder_order("abort", reason="rolled back")
    cluster.wait_ended("r1")
    cluster.write("train.sh", "new")
    cluster.prepare("r1", both, plan_digest="d2")
    assert Path(cluster.hosts["n1"].paths("r1").cwd, "train.sh").read_text() == "new"
    for host in cluster.hosts.values():
        assert (
            host.paths("r1").part().plan_digest == "d2"
            and host.paths("r1").state().phase == "prepared"
        )


def test_a_live_run_of_the_job_is_named(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch("r1", TASKS)
    error = refused(cluster, "r2")
    assert error.code == "live_run" and error.details == {
        "run": "r1",
        "who": "me@here",
        "when": 1.0,
    }
    cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=1.0)
    cluster.prepare("r2", TASKS)


def test_a_damaged_run_is_in_the_way_only_while_something_of_it_is_alive(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch("r1", TASKS)
    cluster.wait_state("r1", "worker:0", "running")
    part = Path(cluster.hosts["n1"].paths("r1").file("part.json"))
    whole = part.read_text()
    part.write_text('{"tasks": 7}')
    assert refused(cluster, "r2").details["run"] == "r1"
    cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=1.0)
    cluster.prepare("r2", TASKS)
    part.write_text(whole)


@pytest.mark.fault("15 a filesystem without named pipes or locks")
def test_a_filesystem_without_named_pipes_is_named(
    hosts: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_fifo(path: str, mode: int) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)

    cluster = hosts("n1")
    with monkeypatch.context() as patched:
        patched.setattr(run_prepare.os, "mkfifo", no_fifo)
        error = refused(cluster, "r1")
    advice_text = str(format_advice("n1", error.advice, error.details))
    assert error.code == "refused" and "named pipes" in advice_text and "`workdir:`" in advice_text
    assert nothing_left(cluster, "r1")


def test_a_taken_port_is_named_with_its_owner_and_nothing_stays(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        error = refused(cluster, "r1", {"worker:0": ("n1", FOREVER, {"port": port})})
        assert error.code == "port_taken" and error.details["port"] == port
        assert error.details["owner"].startswith(f"pid {os.getpid()}: ")
    assert nothing_left(cluster, "r1")


def test_a_port_held_by_another_run_is_taken(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    port = cluster.free_ports(1)[0]
    cluster.prepare("r1", {"worker:0": ("n1", FOREVER, {"port": port})})
    part = dict(
        cluster.parts("r2", {"worker:0": ("n1", FOREVER, {"port": port})})["n1"], job="other"
    )
    release = Path(cluster.hosts["n1"].context.workdir) / "other" / "releases" / part["release"]
    release.mkdir(parents=True)
    shutil.copy(f"{cluster.hosts['n1'].release}.json", f"{release}.json")
    with pytest.raises(VerbError) as caught:
        cluster.hosts["n1"].call("run.prepare", part=part, plan={}, secrets={}, certs={})
    assert (
        caught.value.code == "port_taken"
        and caught.value.details["owner"] == f"worker:0 of run r1 of job {cluster.job}"
    )


def test_a_held_port_is_free_after_the_end(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    port = cluster.free_ports(1)[0]
    cluster.prepare("r1", {"worker:0": ("n1", FOREVER, {"port": port})})
    with socket.socket() as other, pytest.raises(OSError):
        other.bind(("127.0.0.1", port))
    cluster.hosts["n1"].call("run.abort", run="r1", job=cluster.job, reason="x", purge=True)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
    assert nothing_left(cluster, "r1")


def test_no_release_and_no_program(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    error = refused(cluster, "r1", {"worker:0": ("n1", ["python3", "-u", "train.py", "--x=1"])})
    assert error.code == "no_program" and "train.py" in error.what
    assert nothing_left(cluster, "r1")
    cluster.write("train.py", "")
    cluster.prepare("r1", {"worker:0": ("n1", ["python3", "train.py"])})
    cluster.hosts["n1"].release.rename(str(cluster.hosts["n1"].release) + ".gone")
    cluster.hosts["n1"].call("run.abort", run="r1", job=cluster.job, reason="x", purge=True)
    assert refused(cluster, "r2").code == "no_release"


def test_a_run_folder_that_is_a_link_is_refused(hosts: NewCluster, tmp_path: Path) -> None:
    cluster = hosts("n1")
    run_dir = Path(cluster.hosts["n1"].paths("r1").run_dir)
    run_dir.parent.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run_dir.symlink_to(elsewhere)
    with pytest.raises(VerbError, match="is a link"):
        cluster.hosts["n1"].call(
            "run.prepare", part=cluster.parts("r1", TASKS)["n1"], plan={}, secrets={}, certs={}
        )
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    "field",
    [
        {"run": "../x"},
        {"job": "a/b"},
        {"host": ""},
        {"release": ".."},
        {"keep": ["../x"]},
        {"links": {"/x": "d"}},
    ],
)
def test_names_and_paths_are_checked_again(hosts: NewCluster, field: Any) -> None:
    cluster = hosts("n1")
    part = dict(cluster.parts("r1", TASKS)["n1"], **field)
    with pytest.raises(VerbError) as caught:
        cluster.hosts["n1"].call("run.prepare", part=part, plan={}, secrets={}, certs={})
    assert caught.value.code == "bad_name"


@pytest.mark.parametrize("cwd", ["../x", "/tmp", "a/../..", "a/"])
def test_a_task_starts_inside_the_code_alone(hosts: NewCluster, cwd: str) -> None:
    cluster = hosts("n1")
    assert refused(cluster, "r1", {"worker:0": ("n1", FOREVER, {"cwd": cwd})}).code == "bad_name"


def test_hosts_that_share_a_workdir(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    cluster.write("train.sh", "echo $TFDEPLOY_TASK_HOST")
    cluster.hosts["n2"].context = cluster.hosts["n1"].context
    cluster.prepare("r1", {"worker:0": ("n1", FOREVER), "worker:1": ("n2", FOREVER)})
    for name, host in cluster.hosts.items():
        assert host.paths("r1").state().host == name
    assert sorted(os.listdir(Path(cluster.hosts["n1"].paths("r1").run_dir, "hosts"))) == [
        "n1",
        "n2",
    ]


def test_the_copy_is_private_and_data_is_linked(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.write("lib/x.py", "1")
    os.symlink("lib/x.py", cluster.hosts["n1"].release / "x.py")
    data = Path(cluster.hosts["n1"].context.workdir, cluster.job, "data")
    (data / "digits").mkdir(parents=True)
    (data / "digits" / "a").write_text("a")
    (data / "one").mkdir()
    (data / "one" / "set.csv").write_text("b")
    cluster.prepare(
        "r1",
        TASKS,
        keep=["checkpoints", "deep/er"],
        links={"input/digits": "digits", "set.csv": "one"},
    )
    cwd = Path(cluster.hosts["n1"].paths("r1").cwd)
    assert (cwd / "x.py").is_symlink() and (cwd / "x.py").read_text() == "1"
    assert (cwd / "input" / "digits" / "a").read_text() == "a" and (
        cwd / "set.csv"
    ).read_text() == "b"
    (cwd / "deep" / "er" / "ck").write_text("c")
    assert (data.parent / "keep" / "deep" / "er" / "ck").read_text() == "c"
    (cwd / "lib" / "x.py").write_text("2")
    assert (cluster.hosts["n1"].release / "lib" / "x.py").read_text() == "1"
    assert oct(os.stat(cluster.hosts["n1"].paths("r1").run_dir).st_mode)[-3:] == "700"


def test_the_minder_holds_nothing_of_ours_open(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    cluster.launch("r1", TASKS)
    os.close(writing)
    # This read would block forever if the minder (the process that looks after the run) had
    # inherited the other end of the pipe.
    assert os.read(reading, 1) == b""
    os.close(reading)
    minder = cluster.state("r1", "n1").minder_pid
    files = {os.readlink(f"/proc/{minder}/fd/{number}") for number in range(3)}
    assert files == {"/dev/null", cluster.hosts["n1"].paths("r1").file("minder.log")}
    one = processes.read_process(minder)
    assert one is not None and one.parent != os.getpid()


@pytest.mark.fault("60 a release with other code")
def test_a_release_that_was_edited_is_not_run(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.write("train.py", "print('right')\n")
    given = cluster.parts("r1", {"worker:0": ("n1", ["python3", "train.py"])})["n1"]
    cluster.write("train.py", "print('other code')\n")
    with pytest.raises(VerbError) as caught:
        cluster.hosts["n1"].call("run.prepare", part=given, plan={}, secrets={}, certs={})
    assert (
        caught.value.code == "no_release"
        and "train.py" in caught.value.what
        and format_advice("n1", caught.value.advice, {}) == "`tfdeploy sync`"
    )
    assert nothing_left(cluster, "r1")


@pytest.mark.fault("60 a keep folder of another user")
@pytest.mark.parametrize("how", ["a link", "another user's"])
def test_a_keep_folder_that_another_user_made_is_not_used(
    hosts: NewCluster, tmp_path: Path, how: str
) -> None:
    cluster = hosts("n1")
    keep = Path(layout.keep_dir(cluster.hosts["n1"].context.workdir, cluster.job, "checkpoints"))
    keep.mkdir(parents=True)
    # A program of an earlier run may have given the `keep` folder this mode.
    keep.chmod(0o777)
    cluster.prepare("r1", TASKS, keep=["checkpoints"])
    cluster.hosts["n1"].call("run.abort", run="r1", job=cluster.job, reason="x", purge=True)
    if how == "a link":
        keep.symlink_to(keep.rename(tmp_path / "elsewhere"))
    else:
        require("other accounts")
        os.chown(keep, 4711, 4711)
    given = cluster.parts("r2", TASKS, keep=["checkpoints"])["n1"]
    with pytest.raises(UntrustedPath, match=r"checkpoints (is a link to|belongs to)"):
        cluster.hosts["n1"].call("run.prepare", part=given, plan={}, secrets={}, certs={})
