"""Test the samples of a run (measurements of its tasks and hosts). The real sampler process
measures real tasks, and no client is connected.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster
from support.stopwatch import Stopwatch
from tfdeploy.agent import layout, wire
from tfdeploy.agent.call import Call
from tfdeploy.agent.host import processes
from tfdeploy.agent.minder import sampling
from tfdeploy.agent.run import folder
from tfdeploy.agent.sampling import series
from tfdeploy.agent.serve.run import status as run_status

STEP = {"step": r"step (\d+)", "accuracy": r"acc ([\d.]+)"}
WRITTEN = Path(__file__).with_name("event_files")
BUSY = "echo step 5 acc 0.5; while [ ! -e go ]; do :; done; echo step 6 acc 0.75"
SMI = """#!/bin/sh
trap 'exit 0' TERM
while :; do echo "0, 87, 1024, 81559"; echo "1, [N/A], [N/A], [N/A]"; sleep 0.1; done
"""


def taken(cluster: Cluster, task: str = "worker:0", host: str = "n1") -> list[dict[str, Any]]:
    return series.read_rows(
        os.path.join(cluster.hosts[host].paths("r1").task_dir(task), layout.SAMPLES)
    )


def known_now(cluster: Cluster) -> dict[str, Any]:
    """Return the newest sample of each task, in the form that `status` receives."""
    said: Any = run_status.run_status(
        Call(cluster.hosts["n1"].context, {"run": "r1", "job": cluster.job})
    )["samples"]
    task_metrics: dict[str, Any] = said["tasks"] if said else {}
    return task_metrics


def of_host(cluster: Cluster) -> list[dict[str, Any]]:
    return series.read_rows(cluster.hosts["n1"].paths("r1").file(layout.SAMPLES))


def samplers(cluster: Cluster) -> list[int]:
    """Return the pids of the live samplers of the run."""
    folder = os.fsencode(cluster.hosts["n1"].paths("r1").host_dir)
    words = {
        one.pid: processes.read_command_line(one.pid).split(b"\0")
        for one in processes.all_processes().values()
        if one.is_alive
    }
    return [pid for pid, argv in words.items() if b"sample" in argv and folder in argv]


def test_what_a_task_uses_and_prints_is_noted_until_its_end(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", ["sh", "-c", BUSY])}, metrics=STEP, sample_every_s=0.1)
    cluster.wait_until(lambda: any(row.get("cpu", 0) > 0.1 for row in taken(cluster)))
    # On a busy machine, the first samples may be taken before the program prints.
    (first,) = cluster.wait_until(lambda: [row for row in taken(cluster) if "printed" in row])
    assert (
        first["attempt"] == 1
        and first["memory"] > 100_000
        and first["printed"] == {"step": 5, "accuracy": 0.5}
    )
    newest = json.loads(
        Path(cluster.hosts["n1"].paths("r1").file(layout.NEWEST_SAMPLES)).read_text()
    )
    assert newest["tasks"]["worker:0"]["memory"] > 100_000 and newest["host"]["memory"] > 1 << 20
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")
    cluster.wait_until(lambda: taken(cluster)[-1].get("printed") == {"step": 6, "accuracy": 0.75})
    assert any(
        row.get("cpu", 0) > 0.1 and set(row["rates"]) >= {"received", "sent"}
        for row in of_host(cluster)
    )
    cluster.wait_until(lambda: not samplers(cluster))


def test_what_is_in_event_files_is_the_deciding_tasks_and_stays_in_what_is_known_now(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1")
    file = f"logs/train/events.out.tfevents.100.{os.uname().nodename}"
    write = (
        f"mkdir -p logs/train; cat {WRITTEN}/version1.tfevents >{file}; while [ ! -e go ]; do "
        "sleep 0.1; done"
    )
    tasks = {
        "ps:0": ("n1", ["sh", "-c", "echo step 3; while [ ! -e go ]; do :; done"]),
        "worker:0": ("n1", ["sh", "-c", write]),
    }
    cluster.launch("r1", tasks, metrics=STEP, sample_every_s=0.1)
    written = {
        "step": 3,
        "loss": 0.25,
        "accuracy": 0.75,
        "train/loss": 0.25,
        "train/layer/accuracy": 0.75,
    }
    cluster.wait_until(lambda: any(row.get("printed") == written for row in taken(cluster)))
    count = len(taken(cluster))
    cluster.wait_until(lambda: len(taken(cluster)) > count + 3)
    assert len([row for row in taken(cluster) if "printed" in row]) == 1
    assert [row["printed"] for row in taken(cluster, "ps:0") if "printed" in row] == [{"step": 3}]
    newest = known_now(cluster)
    assert newest["worker:0"]["printed"] == written and newest["ps:0"]["printed"] == {"step": 3}
    assert (
        newest["worker:0"]["step_time"] == pytest.approx(1795485837.6, abs=1)
        and "step_time" not in newest["ps:0"]
    )
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")
    cluster.wait_until(lambda: not samplers(cluster))
    newest = known_now(cluster)
    assert newest["worker:0"]["printed"] == written


def test_what_a_program_prints_stands_before_its_event_files_and_stays_behind_a_long_traceback(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1")
    file = f"logs/events.out.tfevents.100.{os.uname().nodename}"
    write = (
        f"mkdir logs; cat {WRITTEN}/version1.tfevents >{file}; echo step 41 acc 0.5; while [ ! "
        "-e go ]; do sleep 0.1; done"
    )
    fail = "i=0; while [ $i -lt 700 ]; do echo 'File x.py, line 3'; i=$((i+1)); done; exit 1"
    cluster.launch(
        "r1",
        {"worker:0": ("n1", ["sh", "-c", f"{write}; {fail}"])},
        metrics=STEP,
        sample_every_s=0.1,
    )
    cluster.wait_until(
        lambda: known_now(cluster).get("worker:0", {}).get("printed", {}).get("loss") == 0.25
    )
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")
    cluster.wait_until(lambda: not samplers(cluster))
    newest = known_now(cluster)["worker:0"]
    assert (
        newest["printed"]["step"] == 41
        and newest["printed"]["accuracy"] == 0.5
        and "step_time" not in newest
    )


def test_a_printed_metric_is_known_within_a_second_between_two_samples(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    program = "n=0; while sleep 0.05; do [ -e go$n ] && n=$((n+1)) && echo step $n acc 0.5; done"
    cluster.launch(
        "r1", {"worker:0": ("n1", ["sh", "-c", program])}, metrics=STEP, sample_every_s=3600.0
    )
    cluster.wait_until(lambda: known_now(cluster).get("worker:0"))
    watch, before = Stopwatch(), time.time()
    Path(cluster.hosts["n1"].paths("r1").cwd, "go0").touch()
    newest = cluster.wait_until(
        lambda: "printed" in known_now(cluster)["worker:0"] and known_now(cluster)["worker:0"]
    )
    assert newest["printed"] == {"step": 1, "accuracy": 0.5} and watch.seconds < 1.0
    assert before - 0.1 < newest["step_times"]["step"] < time.time() + 0.1
    assert newest["memory"] > 0
    assert len(taken(cluster)) == 1


def test_it_goes_with_its_minder(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", ["sleep", "1000"])}, sample_every_s=0.1)
    (old,) = cluster.wait_until(lambda: samplers(cluster))
    os.kill(cluster.state("r1", "n1").minder_pid or 0, signal.SIGKILL)
    cluster.wait_until(lambda: old not in samplers(cluster))


def test_the_run_goes_on_where_the_sampler_is_killed(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", ["sh", "-c", BUSY])}, sample_every_s=0.1)
    (pid,) = cluster.wait_until(lambda: samplers(cluster))
    os.kill(pid, signal.SIGKILL)
    cluster.wait_until(lambda: not samplers(cluster))
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")
    assert cluster.status("r1", "worker:0").outcome == "succeeded"


def test_a_pattern_that_does_not_end_is_stopped_and_said_and_the_sampler_goes_on(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1")
    program = f"n=0; while sleep 0.05; do n=$((n+1)); echo step $n; echo {'a' * 40}b; done"
    metrics = {"bad": r"(a+)+$", **STEP}
    cluster.launch(
        "r1", {"worker:0": ("n1", ["sh", "-c", program])}, metrics=metrics, sample_every_s=0.1
    )
    cluster.wait_until(lambda: known_now(cluster).get("worker:0", {}).get("stopped") == ["bad"])
    (pid,) = samplers(cluster)
    count = len(taken(cluster))
    cluster.wait_until(
        lambda: any("step" in row.get("printed", {}) for row in taken(cluster)[count:])
    )
    assert samplers(cluster) == [pid] and not any("stopped" in row for row in taken(cluster))


def test_what_costs_too_much_all_the_same_ends_the_sampler_and_the_next_one_reads_nothing(
    hosts: NewCluster, agent_dir: str
) -> None:
    cluster, endless = hosts("n1"), {"step": r"(a+)+$"}
    cluster.launch(
        "r1",
        {
            "worker:0": (
                "n1",
                ["sh", "-c", "echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab; exec sleep 1000"],
            )
        },
        metrics=endless,
        sample_every_s=0.1,
    )
    paths = cluster.hosts["n1"].paths("r1")
    cluster.wait_until(lambda: "aab" in cluster.log("r1", "worker:0"))
    program = (
        f"import os, sys; sys.path.insert(0, {agent_dir!r}); from tfdeploy.agent import "
        "metric_reader; "
        "from tfdeploy.agent.sampling import sampler; sampler.STEP_CPU_S = 0.3; "
        "metric_reader.SECOND_CPU_S = 60.0;"
        " sampler.main(sys.argv[1:] + [str(os.getppid())] + ['unread'] * UNREAD)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program.replace("UNREAD", "0"), paths.host_dir],
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == -signal.SIGPROF
    ended = subprocess.run(
        [sys.executable, "-c", program.replace("UNREAD", "1"), paths.host_dir],
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 0
    assert known_now(cluster)["worker:0"]["stopped"] == ["step"]


def test_the_minder_takes_a_death_by_cpu_time_as_a_pattern_that_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def command(*words: str) -> list[str]:
        started.append(list(words))
        return ["sleep", "1000"]

    monkeypatch.setattr(folder, "agent_command", command)
    part = wire.HostPart(run="r1", job="j", mode="async", host="n1", plan_digest="", release="")
    (tmp_path / "n1").mkdir()
    one = sampling.SamplerProcess(sampling.RunPaths(str(tmp_path / "n1")), part)
    one.start_if_dead(1000.0, {})
    assert one._child is not None
    one._child.send_signal(signal.SIGPROF)
    pid, status = os.waitpid(one._child.pid, 0)
    one.start_if_dead(1001.0, {pid: status})
    # A sampler that has ended is not started again at once.
    assert len(started) == 1
    one.start_if_dead(1000.0 + sampling.AGAIN_S, {})
    assert [words[-1] == "unread" for words in started] == [False, True]
    one._child.send_signal(signal.SIGTERM)
    one.end()


def test_gpus_by_nvidia_smi(
    hosts: NewCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script prints what nvidia-smi would print, because this machine may have no GPU."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(SMI)
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", ["sleep", "1000"], {"gpus": [0]})}, sample_every_s=0.1)
    row = cluster.wait_until(
        lambda: next((row for row in of_host(cluster) if row.get("gpus")), None)
    )
    assert row["gpus"] == [[0, 87.0, 1024 << 20, 81559 << 20], [1, None, None, None]]
    cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=0.0)
    cluster.wait_until(lambda: not samplers(cluster))
    smi = os.fsencode(folder / "nvidia-smi")
    cluster.wait_until(
        lambda: (
            not any(smi in processes.read_command_line(pid) for pid in processes.all_processes())
        ),
        what="nvidia-smi has ended",
    )
