"""Test that nothing of a launch is left on a host if the launch is interrupted, whichever process
dies and when.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agent.client import Client
from support.agent.cluster import Cluster, NewCluster
from support.agent.interpreter import AGENT_PYTHON
from tfdeploy.agent import layout
from tfdeploy.agent.host import processes
from tfdeploy.agent.run import folder as paths
from tfdeploy.agent.run import task_processes, uncommitted
from tfdeploy.agent.serve.run import ending as run_ending

TASKS = {"worker:0": ("n1", ["sleep", "1000"])}
SECRET = {"TOKEN": "a-word-that-nobody-may-find"}
BEFORE = (
    "import sys; sys.path.insert(0, %r); from tfdeploy.agent import frames, main; %s; "
    "main.main(sys.argv[1:])"
)
# Each entry of STOPS is code that pauses the verb run.prepare at one point. The verb continues when
# the file `go` exists next to the workdir.
STOP = (
    "import os, time; go = %r; wait = lambda: [time.sleep(0.01) for _ in iter(lambda: "
    "os.path.exists(go), True)]; "
)
STOPS = {
    "while it copies": "from tfdeploy.agent.run import workdir as w; whole = w._copy_file; "
    "w._copy_file = lambda *a: (open(go + '.reached', 'w').close(), wait(), whole(*a))[2]",
    "before its secrets": "from tfdeploy.agent.serve.run import prepare "
    "as p; whole = p._write_secrets; "
    "p._write_secrets = lambda *a: (open(go + '.reached', 'w').close(), wait(), whole(*a))[2]",
    "before its minder": "from tfdeploy.agent.serve.run import "
    "prepare as p; whole = p.start_minder; "
    "p.start_minder = lambda *a: (open(go + '.reached', 'w').close(), wait(), whole(*a))[2]",
    "before its minder answers": "from tfdeploy.agent.serve.run import "
    "minder_start as p; whole = p._read_answer; "
    "p._read_answer = lambda r, check: "
    "(open(go + '.reached', 'w').close(), wait(), whole(r, check))[2]",
}


class Host:
    """A host on which a test can stop the verb run.prepare at each point that STOPS lists."""

    def __init__(self, cluster: Cluster, agent_dir: str) -> None:
        self.cluster, self.agent_dir = cluster, agent_dir
        self.workdir = Path(cluster.hosts["n1"].context.workdir)
        self.go = Path(str(self.workdir) + ".go")
        self.clients: list[Client] = []
        cluster.write("train.py", "x")
        cluster.runs.append("r1")

    def session(self, stop: str = "") -> Client:
        command = [
            AGENT_PYTHON,
            "-S",
            "-E",
            self.agent_dir,
            "serve",
            "--workdir",
            str(self.workdir),
        ]
        if stop:
            command[3:4] = ["-c", BEFORE % (self.agent_dir, STOP % str(self.go) + STOPS[stop])]
        self.clients.append(Client(command))
        return self.clients[-1]

    def begin(self, stop: str, **fields: Any) -> Client:
        """Call run.prepare, which stops at the point `stop`. Return the session once the verb has
        reached that point.
        """
        session = self.session(stop)
        part = self.cluster.parts("r1", TASKS, **fields)["n1"]
        session.ask(
            "run.prepare", part=part, plan={}, secrets=SECRET, certs=self.cluster.certs["n1"]
        )
        self.cluster.wait_until(Path(f"{self.go}.reached").exists, what=stop)
        return session

    def left(self) -> list[str]:
        """Return what is left of the run: the paths of its files, and the command of its minder."""
        paths_left = [
            str(path)
            # A folder may disappear while os.walk runs. Then os.walk goes on without an error.
            for base, _, names in os.walk(self.workdir)
            for path in (Path(base, name) for name in names)
            if path.is_file() and ("r1" in path.parts or SECRET["TOKEN"] in text(path))
        ]
        notes = layout.uncommitted_marks_dir(str(self.workdir))
        paths_left += os.listdir(notes) if os.path.isdir(notes) else []
        ours = self.cluster.hosts["n1"].paths("r1").host_dir
        minders = [
            one
            for one in processes.all_processes().values()
            if os.fsencode(ours) in processes.read_command_line(one.pid)
        ]
        return paths_left + [one.command for one in minders]

    def nothing_left(self) -> None:
        self.cluster.wait_until(lambda: not self.left(), what=f"nothing is left of {self.left()}")
        # The files of the run are removed before their folder, so the folder may still exist for a
        # moment.
        folder = self.cluster.hosts["n1"].paths("r1").run_dir
        self.cluster.wait_until(lambda: not os.path.exists(folder), what="the folder is gone")


def text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@pytest.fixture
def host(hosts: NewCluster, agent_dir: str) -> Iterator[Host]:
    made = Host(hosts("n1"), agent_dir)
    yield made
    made.go.touch()
    for client in made.clients:
        client.clean()


def go_on(host: Host) -> None:
    host.go.touch()


@pytest.mark.fault("61 the session of a launch ends while a host prepares")
@pytest.mark.parametrize("stop", STOPS)
def test_the_end_of_a_session_sweeps_what_it_was_preparing(host: Host, stop: str) -> None:
    session = host.begin(stop, start_within_s=300.0)
    session.stdin.close()
    go_on(host)
    assert session.process.wait(120) == 0
    host.nothing_left()


@pytest.mark.fault("61 serve is killed while a host prepares")
@pytest.mark.parametrize("stop", STOPS)
def test_the_next_session_sweeps_what_a_serve_that_was_killed_left(host: Host, stop: str) -> None:
    session = host.begin(stop, start_within_s=3.0)
    session.process.kill()
    session.process.wait()
    assert host.left()
    # The minder ends the run by itself, without another session.
    if stop == "before its minder answers":
        host.nothing_left()
    else:
        host.session()
        host.nothing_left()


@pytest.mark.fault("61 a rollback comes while a host prepares")
@pytest.mark.parametrize("stop", STOPS)
def test_an_abort_that_comes_during_a_prepare_wins(host: Host, stop: str) -> None:
    session = host.begin(stop, start_within_s=300.0)
    about = {
        "run": "r1",
        "job": host.cluster.job,
        "reason": "rolled back",
        "purge": True,
        "host": "n1",
        "plan_digest": "d1",
    }
    done: list[Any] = []
    other = host.session()
    aborting = threading.Thread(
        daemon=True, target=lambda: done.append(other.call("run.abort", **about))
    )
    aborting.start()
    folder = layout.host_dir(str(host.workdir), host.cluster.job, "r1", "n1")
    mark = paths.RunPaths(folder).uncommitted_mark_file + "@abort"
    host.cluster.wait_until(lambda: os.path.exists(mark), what="the abort is there")
    go_on(host)
    aborting.join(120)
    assert done and done[0].get("value") is not None, done
    assert session.answer(1)["error"]["code"] == "ended"
    host.nothing_left()


@pytest.mark.fault("61 the launch is killed when all is prepared")
def test_what_is_prepared_ends_by_itself_and_nothing_of_it_stays(host: Host) -> None:
    session = host.session()
    part = host.cluster.parts("r1", TASKS, start_within_s=1.0)["n1"]
    assert session.call(
        "run.prepare", part=part, plan={}, secrets=SECRET, certs=host.cluster.certs["n1"]
    )["value"]
    session.process.kill()
    host.nothing_left()


def test_what_a_dead_machine_left_started_is_ended_and_forgets_its_secrets(host: Host) -> None:
    """Before the run is committed, the minder (the process that looks after the run on a host) and
    the supervisor (the task's parent process) are killed together, as in a power cut. Then the next
    session must end the tasks and remove the secrets.
    """
    session = host.session()
    part = host.cluster.parts("r1", TASKS)["n1"]
    session.call("run.prepare", part=part, plan={}, secrets=SECRET, certs=host.cluster.certs["n1"])
    session.call("run.start", run="r1", job=host.cluster.job)
    paths = host.cluster.hosts["n1"].paths("r1")
    for who in (
        task_processes.find_live_supervisor(paths, "worker:0"),
        task_processes.read_minder(paths),
        task_processes.find_live_supervisor(paths, "worker:0"),
    ):
        if who is not None:
            processes.send_signal(who, signal.SIGSTOP)
    for who in (
        task_processes.read_minder(paths),
        task_processes.find_live_supervisor(paths, "worker:0"),
    ):
        assert who is not None and processes.send_signal(who, signal.SIGKILL)
    host.session()
    host.cluster.wait_until(lambda: paths.state().phase == "ended", what="swept")
    assert not os.path.exists(paths.file("env.json")) and not host.cluster.alive("r1")
    assert paths.state().abort_reason is None or "launch" in paths.state().abort_reason


@pytest.mark.parametrize(
    "spoiled",
    [{"part.json": '{"tasks": 7}'}, {"part.json": "{}", "state.json": '{"phase": {}, "marks": 7}'}],
)
def test_one_run_that_is_damaged_keeps_no_other_from_being_swept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], spoiled: dict[str, str]
) -> None:
    bad, good = (
        paths.RunPaths(layout.host_dir(str(tmp_path), job, "r1", "n1")) for job in ("bad", "good")
    )
    for each in (bad, good):
        os.makedirs(os.path.join(each.host_dir, "tasks"))
        os.makedirs(layout.locks_dir(each.workdir, each.job))
        uncommitted.mark_uncommitted(each)
    for name, text in spoiled.items():
        Path(bad.file(name)).write_text(text)
    Path(good.file("env.json")).write_text(SECRET["TOKEN"])
    run_ending.undo_unfinished_launches(str(tmp_path), "")
    assert not os.path.exists(good.file("env.json")) and not uncommitted.is_uncommitted(good)
    said = capfd.readouterr().err
    assert (
        said.count("\n") == 1
        and "unfinished launch of run r1 (job bad) cannot be undone: " in said
        and uncommitted.is_uncommitted(bad)
    )


def test_a_session_sweeps_nothing_that_is_minded_or_committed(host: Host) -> None:
    session = host.session()
    part = host.cluster.parts("r1", TASKS)["n1"]
    session.call("run.prepare", part=part, plan={}, secrets=SECRET, certs=host.cluster.certs["n1"])
    paths = host.cluster.hosts["n1"].paths("r1")
    minder = task_processes.read_minder(paths)
    assert host.session().call("ping")["value"] and task_processes.read_minder(paths) == minder
    for verb in ("run.start", "run.commit"):
        assert "value" in session.call(verb, run="r1", job=host.cluster.job)
    host.cluster.wait_until(
        lambda: os.listdir(layout.uncommitted_marks_dir(str(host.workdir))) == [],
        what="no longer uncommitted",
    )
    host.session().call("ping")
    assert paths.state().phase == "committed" and host.cluster.alive("r1")


def test_a_word_that_was_written_halfway_goes_with_the_run(host: Host) -> None:
    session = host.session()
    part = host.cluster.parts("r1", TASKS)["n1"]
    session.call("run.prepare", part=part, plan={}, secrets=SECRET, certs=host.cluster.certs["n1"])
    session.call("run.start", run="r1", job=host.cluster.job)
    half = Path(host.cluster.hosts["n1"].paths("r1").file(".word.commit.fa0be013971e.tmp"))
    half.touch()
    os.utime(half, (1000, 1000))
    session.call("run.abort", run="r1", job=host.cluster.job, reason="test")
    host.cluster.wait_until(lambda: not half.exists(), what="the half word has gone")
