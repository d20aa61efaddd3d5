"""Test which files and processes `audit` reports as left over on a host. It must report nothing of
a run that is alive or that has ended normally.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster
from tfdeploy.agent import layout
from tfdeploy.agent.call import Call
from tfdeploy.agent.host import processes
from tfdeploy.agent.run import old_secrets, task_processes, uncommitted
from tfdeploy.agent.serve.run import ending as run_ending
from tfdeploy.agent.serve.server import find_verb

TASKS = {"worker:0": ("n1", ["sh", "-c", "until test -e go; do sleep 0.05; done"])}
SECRETS = {"TOKEN": "hunter2!"}


def asked(cluster: Cluster, **args: Any) -> Any:
    return find_verb("audit")(Call(cluster.hosts["n1"].context, args))


def left(cluster: Cluster, **args: Any) -> set[tuple[str, str]]:
    above = cluster.hosts["n1"].context.workdir + "/"
    return {(row["kind"], row["path"].replace(above, "")) for row in asked(cluster, **args)["left"]}


@pytest.fixture
def cluster(hosts: NewCluster) -> Cluster:
    made = hosts("n1")
    os.chmod(made.hosts["n1"].context.workdir, 0o700)
    return made


@pytest.fixture
def ended(cluster: Cluster) -> Cluster:
    """Return a cluster whose run r1 has ended."""
    cluster.launch("r1", TASKS, secrets=SECRETS)
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")
    return cluster


def test_nothing_is_left_of_a_run_that_is_prepared_lives_or_has_ended(cluster: Cluster) -> None:
    cluster.prepare("r1", TASKS, secrets=SECRETS)
    mine = {"job": cluster.job, "run": "r1", "host": "n1"}
    for verb in ("run.start", "run.commit", ""):
        assert left(cluster) == set() == left(cluster, job=cluster.job, run="r1")
        assert asked(cluster)["held"] == [mine]
        if verb:
            cluster.each(verb, "r1")
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")
    assert (
        left(cluster) == set() == left(cluster, job=cluster.job, run="r1")
        and asked(cluster)["held"] == []
    )
    assert left(cluster, job=cluster.job, run="never-was") == set()


def test_each_thing_that_should_not_be_there_is_named(ended: Cluster) -> None:
    workdir, job = Path(ended.hosts["n1"].context.workdir), ended.job
    host_dir = workdir / job / "runs/r1/hosts/n1"
    for path in (".env.json.0123456789ab.tmp", "env.json"):
        (host_dir / path).write_text("{}")
    planted = [
        "strange",
        "folder/x",
        f"{job}/strange",
        f"{job}/runs/r1/strange",
        f"{job}/runs/r2/hosts/n1/state.json",
    ]
    planted += [
        f"{job}/releases/.staging-x/y",
        f"{job}/runs/r1/.cwd.x/y",
        f"{job}/runs/r1/gone-0/x",
    ]
    for path in planted:
        (workdir / path).parent.mkdir(parents=True, exist_ok=True)
        (workdir / path).write_text("")
    (workdir / "link").symlink_to("/")
    runs = f"{job}/runs"
    of_run = {
        ("secret", f"{runs}/r1/hosts/n1/{name}")
        for name in ("env.json", ".env.json.0123456789ab.tmp")
    }
    of_run |= {
        ("foreign", f"{runs}/r1/strange"),
        ("half", f"{runs}/r1/.cwd.x"),
        ("half", f"{runs}/r1/gone-0"),
    }
    rest = {("foreign", name) for name in ("strange", "folder", "link", f"{job}/strange")}
    rest |= {("half", f"{job}/releases/.staging-x"), ("half a run", f"{runs}/r2/hosts/n1")}
    assert left(ended, job=job, run="r1") == of_run
    assert left(ended) == of_run | rest


@pytest.fixture
def marked(ended: Cluster) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process whose environment has the marker of run r1, by which tfdeploy finds the
    processes of a run."""
    marks = task_processes.environment_markers(ended.hosts["n1"].paths("r1"), "worker:0")
    process = subprocess.Popen(
        ["sleep", "1000"], env={**os.environ, **marks, "TFDEPLOY_TASK_JOB": ended.job}
    )
    yield process
    process.kill()
    process.wait()


def test_a_process_of_a_run_that_has_ended_is_named(
    ended: Cluster, marked: subprocess.Popen[bytes]
) -> None:
    expected = {("process", f"/proc/{marked.pid}")}
    ended.wait_until(lambda: left(ended) == expected)
    assert (
        left(ended, job=ended.job, run="r1") == expected
        and left(ended, job=ended.job, run="r2") == set()
    )


def test_secrets_of_a_run_that_nobody_minds_are_named_and_go_with_the_next_commit(
    cluster: Cluster,
) -> None:
    cluster.launch("r1", TASKS, secrets=SECRETS)
    paths = cluster.hosts["n1"].paths("r1")
    supervisor, minder = (
        task_processes.find_live_supervisor(paths, "worker:0"),
        task_processes.read_minder(paths),
    )
    assert supervisor is not None and minder is not None
    for who in (minder, supervisor):
        processes.send_signal(who, signal.SIGKILL)
    cluster.wait_until(
        lambda: (
            not processes.is_alive(supervisor)
            and not processes.is_alive(minder)
            and not cluster.alive("r1")
        )
    )
    names = {os.path.basename(path) for kind, path in left(cluster) if kind == "secret"}
    assert names == {"env.json", "mesh.json"}
    cluster.prepare("r2", TASKS, secrets=SECRETS)
    cluster.each("run.start", "r2")
    # r2 is not committed yet. If the launch of r2 is rolled back, r1 may be resumed. Then r1 needs
    # its own secrets, so they are kept until the commit.
    assert old_secrets.list_secret_files(paths)
    cluster.each("run.commit", "r2")
    assert left(cluster) == set() and old_secrets.list_secret_files(cluster.hosts["n1"].paths("r2"))


def test_a_stop_removes_secrets_that_the_end_could_not(ended: Cluster) -> None:
    paths = ended.hosts["n1"].paths("r1")
    Path(paths.file("env.json")).write_text("{}")
    ended.each("run.stop", "r1", grace_s=0.0)
    assert old_secrets.list_secret_files(paths) == []


def test_a_launch_that_did_not_end_is_named(cluster: Cluster) -> None:
    cluster.prepare("r1", TASKS, secrets=SECRETS)
    paths = cluster.hosts["n1"].paths("r1")
    minder = task_processes.read_minder(paths)
    assert minder is not None and uncommitted.is_uncommitted(paths)
    processes.send_signal(minder, signal.SIGKILL)
    cluster.wait_until(lambda: not processes.is_alive(minder))
    assert {kind for kind, _ in left(cluster)} == {"secret", "a launch that did not end"}
    assert run_ending.VERBS["run.abort"](
        Call(
            cluster.hosts["n1"].context,
            {"run": "r1", "job": cluster.job, "reason": "test", "purge": True},
        )
    )
    assert left(cluster) == set()


def test_secret_files_of_the_code_are_named_in_releases_data_and_runs(ended: Cluster) -> None:
    context = ended.hosts["n1"].context
    paths, job_dir = ended.hosts["n1"].paths("r1"), Path(context.workdir, ended.job)
    release = Path(layout.release_dir(context.workdir, ended.job, paths.part().release))
    places = {
        "runs/r1/cwd/token.txt": Path(paths.cwd, "token.txt"),
        f"releases/{release.name}/token.txt": release / "token.txt",
        "releases/older/token.txt": job_dir / "releases/older/token.txt",
        "data/digits/keys/id": job_dir / "data/digits/keys/id",
    }
    for place in places.values():
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        place.write_text("canary")
    private = {ended.job: {"code": ["token.txt", "nowhere"], "data": ["digits/keys/id"]}}
    assert left(ended) == set()
    named = {("secret file", f"{ended.job}/{path}") for path in places}
    assert left(ended, secret_files=private) == named
    of_run = {row for row in named if "/older/" not in row[1] and "/data/" not in row[1]}
    assert left(ended, job=ended.job, run="r1", secret_files=private) == of_run
