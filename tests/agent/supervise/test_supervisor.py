"""Test one task with its supervisor (its parent process): readiness, output, environment, the end
of the task, and what a client that watches the run receives.
"""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster
from support.needs import require
from support.stopwatch import Stopwatch
from tfdeploy.agent.call import Call
from tfdeploy.agent.host import processes
from tfdeploy.agent.run import task_processes
from tfdeploy.agent.serve.run import follow as run_follow
from tfdeploy.agent.supervise.supervisor import Supervisor

LISTEN = """
import socket, sys, time
s = socket.socket(socket.AF_INET6)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(("::", int(sys.argv[1])))
s.listen(1)
time.sleep(1000)
"""
# A process that maps a file with this name into memory looks like a program that loads TensorFlow.
MAPS = """
import mmap, sys, time
file = open("libtensorflow.so", "r+b")
mapped = mmap.mmap(file.fileno(), 0)
print("mapped", flush=True)
time.sleep(float(sys.argv[1]))
"""


def start(cluster: Cluster, argv: list[str], **spec: Any) -> Any:
    cluster.launch("r1", {"worker:0": ("n1", argv, spec)} if spec else {"worker:0": ("n1", argv)})
    return cluster


def test_up_when_its_own_processes_listen_on_its_port(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.write("listen.py", LISTEN)
    port = cluster.free_ports(1)[0]
    start(
        cluster,
        ["sh", "-c", f"{sys.executable} listen.py {port}; true"],
        port=port,
        ready_after_s=1000.0,
    )
    assert cluster.wait_state("r1", "worker:0", "running").up


def test_a_program_that_maps_tensorflow_is_not_up_before_it_listens(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.write("maps.py", MAPS)
    cluster.write("libtensorflow.so", "x" * 5000)
    port = cluster.free_ports(1)[0]
    cluster.prepare(
        "r1",
        {
            "worker:0": (
                "n1",
                [sys.executable, "maps.py", "1000"],
                {"port": port, "ready_timeout_s": 1.0},
            )
        },
    )
    cluster.each("run.start", "r1")
    state = cluster.wait_ended("r1")["n1"]
    status = cluster.status("r1", "worker:0")
    assert (status.outcome, status.up) == ("failed", False)
    assert status.reason == f"not listening on port {port} after 1 s (ready.timeout)"
    assert state.first_death["task"] == "worker:0"


def test_a_program_without_a_port_that_is_not_up_in_time_says_what_it_waited_for(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1")
    given = {"ready_after_s": 1000.0, "ready_timeout_s": 0.3}
    cluster.prepare("r1", {"worker:0": ("n1", ["sleep", "1000"], given)})
    cluster.each("run.start", "r1")
    cluster.wait_ended("r1")
    assert (
        cluster.status("r1", "worker:0").reason
        == "not up within 0.3 s (ready.timeout); without a port that listens, the task counts "
        "as up only after 1000 s (ready.after)"
    )


def test_one_that_maps_it_and_ends_well_before_it_was_up_has_failed_the_run(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1")
    cluster.write("maps.py", MAPS)
    cluster.write("libtensorflow.so", "x" * 5000)
    port = cluster.free_ports(1)[0]
    cluster.prepare("r1", {"worker:0": ("n1", [sys.executable, "maps.py", "0.8"], {"port": port})})
    cluster.each("run.start", "r1")
    assert "ended too early" in cluster.wait_ended("r1")["n1"].abort_reason


def test_one_that_maps_it_and_has_no_port_is_up_after_a_while_or_a_good_end(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1")
    cluster.write("maps.py", MAPS)
    cluster.write("libtensorflow.so", "x" * 5000)
    cluster.launch(
        "r1", {"worker:0": ("n1", [sys.executable, "maps.py", "0.8"], {"ready_after_s": 1000.0})}
    )
    assert cluster.wait_ended("r1")["n1"].abort_reason is None
    status = cluster.status("r1", "worker:0")
    assert (status.outcome, status.up) == ("succeeded", True)


def test_what_a_task_finds_around_itself(
    hosts: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = {
        "GRPC_FAIL_FAST": "",
        "SSH_AUTH_SOCK": "/x",
        "TFDEPLOY_INVENTORY": "y",
        "TF_CONFIG": "{}",
    }
    for name, text in {**foreign, "KEPT": "z"}.items():
        monkeypatch.setenv(name, text)
    cluster = hosts("n1")
    cluster.write(
        "tell.py",
        "import json,os,sys; env = dict(os.environ, BACKWARDS=os.environ['TOKEN'][::-1])\n"
        "print(json.dumps([env, os.getcwd(), os.umask(0), sys.stdin.read()]))",
    )
    given = {
        "env": {"A": 'it\'s "quoted"\nand more'},
        "port": cluster.free_ports(1)[0],
        "path_prepend": ["/opt/x/bin"],
    }
    cluster.launch(
        "r1", {"worker:0": ("n1", [sys.executable, "tell.py"], given)}, secrets={"TOKEN": "s3cret"}
    )
    cluster.wait_ended("r1")
    env, cwd, umask, stdin = json.loads(cluster.log("r1", "worker:0"))
    marks = {name[14:]: text for name, text in env.items() if name.startswith("TFDEPLOY_TASK_")}
    marks.pop("FOLDER")
    assert marks.pop("LOG").endswith("/tasks/worker-0/out.log")
    assert marks == {
        "RUN_ID": "r1",
        "JOB": "digits",
        "ROLE": "worker",
        "INDEX": "0",
        "HOST": "n1",
        "ATTEMPT": "1",
    }
    assert (
        env["A"] == given["env"]["A"]
        and (env["TOKEN"], env["BACKWARDS"]) == ("***", "terc3s")
        and env["KEPT"] == "z"
    )
    assert env["PATH"].startswith("/opt/x/bin:") and env["TF_GRPC_REUSE_PORT"] == "true"
    assert env["PYTHONPATH"].split(":")[0].endswith("tfdeploy/runtime/site")
    assert not set(foreign) & set(env)
    assert os.path.realpath(cwd) == os.path.realpath(cluster.hosts["n1"].paths("r1").cwd) and (
        umask,
        stdin,
    ) == (0o77, "")


def test_a_task_starts_in_the_folder_that_its_part_names(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.write(
        "src/tell.py",
        "import os,near; print(os.getcwd(), os.environ['PWD'], open('../data/x').read(), "
        "near.SAID)",
    )
    cluster.write("src/near.py", "SAID = 'near'")
    cluster.write("data/x", "of the code")
    cluster.launch("r1", {"worker:0": ("n1", [sys.executable, "tell.py"], {"cwd": "src"})})
    cluster.wait_ended("r1")
    cwd = os.path.join(cluster.hosts["n1"].paths("r1").cwd, "src")
    assert cluster.log("r1", "worker:0").split() == [
        os.path.realpath(cwd),
        cwd,
        "of",
        "the",
        "code",
        "near",
    ]


@pytest.mark.parametrize("hindrance", [MemoryError, ModuleNotFoundError, EOFError])
def test_whatever_hinders_the_search_for_a_cause_the_end_can_be_written(
    monkeypatch: pytest.MonkeyPatch, hindrance: type[Exception]
) -> None:
    def refuse(name: str, *args: Any) -> Any:
        if "explain" in (args[2] or ()):
            raise hindrance(name)
        return imported(name, *args)

    imported = builtins.__import__
    supervisor = object.__new__(Supervisor)
    monkeypatch.setattr(builtins, "__import__", refuse)
    supervisor._add_failure_reason()


def test_killed_by_a_signal(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.prepare("r1", {"worker:0": ("n1", ["sh", "-c", "sleep 0.2; kill -9 $$"])})
    cluster.each("run.start", "r1")
    state = cluster.wait_ended("r1")["n1"]
    status = cluster.status("r1", "worker:0")
    assert (status.outcome, status.signal, status.exit_code) == ("killed", 9, None)
    assert state.abort_reason == "worker:0 on n1 killed by signal 9"


def test_a_flood_is_stored_whole(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    count, watch = 50 << 20, Stopwatch()
    cluster.launch(
        "r1", {"worker:0": ("n1", ["sh", "-c", f"head -c {count} /dev/zero; echo end >&2"])}
    )
    cluster.wait_ended("r1")
    slowdown = watch.slowdown
    status = cluster.status("r1", "worker:0")
    assert (status.outcome, status.log_bytes, status.log_lost_bytes) == ("succeeded", count + 4, 0)
    assert (status.ended - status.started) / slowdown < 5.0


def test_a_leftover_that_holds_the_pipes_and_hides_does_not_hang_it(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    hidden = "import os; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0);"
    hidden += (
        "os.execve('/bin/sh', ['sh', '-c', 'trap \"\" TERM; while :; do echo x; sleep 0.1; "
        "done'], {})"
    )
    cluster.launch(
        "r1", {"worker:0": ("n1", ["sh", "-c", f'{sys.executable} -c "$0"; echo done', hidden])}
    )
    cluster.wait_ended("r1")
    assert cluster.status("r1", "worker:0").outcome == "succeeded"


def test_a_program_that_leaves_its_work_in_the_background_is_told_from_one_that_waits(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1")
    cluster.launch(
        "r1",
        {
            "worker:0": ("n1", ["sh", "-c", "sleep 1000 >/dev/null & exit 0"]),
            "worker:1": ("n1", ["sh", "-c", "sleep 0.1 & exit 0"]),
        },
    )
    cluster.wait_ended("r1")
    reason = cluster.status("r1", "worker:0").reason
    assert cluster.status("r1", "worker:0").outcome == "succeeded"
    assert reason is not None and "did not wait" in reason and "sleep" in reason
    assert cluster.status("r1", "worker:1").reason is None


def test_a_task_is_started_once_only(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", ["sh", "-c", "echo once; sleep 1000"])})
    cluster.wait_until(lambda: cluster.log("r1", "worker:0"))
    for _ in range(3):
        cluster.each("run.start", "r1")
        cluster.each("run.commit", "r1")
    assert cluster.log("r1", "worker:0") == "once\n"
    assert len(cluster.alive("r1")) == 2


def test_a_supervisor_and_its_minder_are_small_and_idle(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    cluster.launch(
        "r1", {"worker:0": ("n1", ["sleep", "1000"]), "worker:1": ("n2", ["sleep", "1000"])}
    )
    cluster.wait_state("r1", "worker:0", "running")
    paths = cluster.hosts["n1"].paths("r1")
    for pid in (paths.status("worker:0").supervisor_pid, paths.state().minder_pid):
        words = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        # VmRSS is in kB. On a real host the goal is 20 MB, because the interpreter of a real host
        # loads less than the interpreter of the tests.
        assert int(words["VmRSS"].split()[0]) < 40_000


def test_watch_tells_each_change_and_ends_with_the_run(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.prepare(
        "r1", {"worker:0": ("n1", ["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"])}
    )
    items: list[Any] = []
    call = Call(
        cluster.hosts["n1"].context,
        {"run": "r1", "job": "digits"},
        b"",
        lambda header, blob: items.append(header),
    )
    watcher = threading.Thread(daemon=True, target=run_follow.VERBS["run.watch"], args=(call,))
    watcher.start()

    def seen(*wanted: str) -> bool:
        phases = [item["host_state"]["phase"] for item in items if "host_state" in item]
        states = [item["task"]["state"] for item in items if "task" in item]
        return set(wanted) <= set(phases + states)

    cluster.wait_until(lambda: seen("prepared", "pending"))
    cluster.each("run.start", "r1")
    cluster.each("run.commit", "r1")
    cluster.wait_until(lambda: seen("committed", "running"))
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    watcher.join(120)
    assert not watcher.is_alive() and seen("ended")
    assert [item for item in items if "host_state" in item][-1]["host_state"]["phase"] == "ended"


def test_watch_ends_when_nobody_is_left(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", ["sleep", "1000"])})
    paths = cluster.hosts["n1"].paths("r1")
    state = paths.state()
    processes.send_signal(
        processes.Identity(state.boot_id, state.minder_pid, state.minder_start_ticks), 9
    )
    processes.send_signal(task_processes.find_live_supervisor(paths, "worker:0"), 9)
    items: list[Any] = []
    run_follow.VERBS["run.watch"](
        Call(
            cluster.hosts["n1"].context,
            {"run": "r1", "job": "digits"},
            b"",
            lambda h, b: items.append(h),
        )
    )
    assert [item["task"]["state"] for item in items if "task" in item][-1] == "lost"


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """Mount a file system of 2 MB at the path that becomes the workdir of n1."""
    place = tmp_path / "n1"
    place.mkdir()
    require("mounts")
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(place)], check=True
    )
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_stops_neither_the_task_nor_its_end(
    small_disk: Path, hosts: NewCluster
) -> None:
    cluster = hosts("n1")
    host = cluster.hosts["n1"]
    script = "while [ ! -e go ]; do sleep 0.05; done; head -c 5000000 /dev/zero; exec sleep 1000"
    cluster.launch(
        "r1",
        {"worker:0": ("n1", ["sh", "-c", script]), "ps:0": ("n1", ["sleep", "1000"])},
        finish_grace_s=0.2,
    )
    paths = host.paths("r1")
    Path(paths.cwd, "go").touch()
    cluster.wait_until(lambda: os.statvfs(small_disk).f_bavail == 0)
    cluster.wait_until(
        lambda: len(cluster.alive("r1")) == 2, what="the writer is through, and both tasks go on"
    )
    watch = Stopwatch()
    answer = host.call("run.stop", run="r1", job=cluster.job, grace_s=1.0)
    assert (
        answer["survivors"] == []
        and answer["seconds"] / watch.slowdown < 5
        and cluster.alive("r1") == []
    )
    for name in ("out.log", "out.log.1"):
        if os.path.exists(os.path.join(paths.task_dir("worker:0"), name)):
            os.unlink(os.path.join(paths.task_dir("worker:0"), name))
    cluster.wait_ended("r1")
    assert cluster.status("r1", "worker:0").outcome == "stopped"
    assert cluster.status("r1", "worker:0").log_lost_bytes > 0


def test_a_task_that_fails_on_a_full_disk_says_so(small_disk: Path, hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch(
        "r1",
        {
            "worker:0": (
                "n1",
                [
                    "sh",
                    "-c",
                    "while [ ! -e go ]; do sleep 0.05; done; head -c 5000000 /dev/zero; exit 1",
                ],
            ),
        },
    )
    paths = cluster.hosts["n1"].paths("r1")
    Path(paths.cwd, "go").touch()
    cluster.wait_until(lambda: os.statvfs(small_disk).f_bavail == 0)
    cluster.wait_until(lambda: cluster.alive("r1") == [])
    os.unlink(os.path.join(paths.task_dir("worker:0"), "out.log"))
    cluster.wait_ended("r1")
    assert cluster.status("r1", "worker:0").reason == "the disk of n1 was full"


def test_a_full_disk_keeps_no_stop_from_what_would_start_again(
    small_disk: Path, hosts: NewCluster
) -> None:
    cluster = hosts("n1")
    host = cluster.hosts["n1"]
    script = "while [ ! -e go ]; do sleep 0.05; done; head -c 5000000 /dev/zero; exec sleep 1000"
    again = {
        "recovery": {"worker:0": ("alone", False)},
        "restart_max": 3,
        "restart_backoff_s": [0.1, 0.1],
    }
    cluster.launch("r1", {"worker:0": ("n1", ["sh", "-c", script])}, **again)
    paths = host.paths("r1")
    Path(paths.cwd, "go").touch()
    cluster.wait_until(lambda: os.statvfs(small_disk).f_bavail == 0)
    cluster.wait_until(lambda: len(cluster.alive("r1")) == 1, what="the writer is through")
    watch = Stopwatch()
    answer = host.call("run.stop", run="r1", job=cluster.job, grace_s=1.0)
    assert answer["survivors"] == [] and answer["seconds"] / watch.slowdown < 5
    log = os.path.join(paths.task_dir("worker:0"), "out.log")
    os.unlink(log)
    state = cluster.wait_ended("r1")["n1"]
    assert state.stop_requested and state.first_death is None
    assert paths.status("worker:0").attempt == 1 and cluster.alive("r1") == []
