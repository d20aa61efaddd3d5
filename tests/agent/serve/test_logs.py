"""Test the verb that sends logs: how it sends stored output and new output, and how a client that
follows the logs learns that it has received everything.
"""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent import layout, wire
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import boot_id
from tfdeploy.agent.log.format import LogWriter
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.run import follow as run_follow


class Host:
    """The folder of a run with the files of its minder (the process that looks after the run) and
    of a supervisor (the parent process of a task). The test holds the lock files of both.
    """

    def __init__(self, workdir: Path, tasks: list[str]) -> None:
        self.context = SessionContext(str(workdir), "")
        self.folder = Path(layout.host_dir(str(workdir), "job", "run", "n1"))
        specs = [
            wire.TaskSpec(
                task=task,
                role=task.split(":")[0],
                index=int(task.split(":")[1]),
                argv=["true"],
                env={},
            )
            for task in tasks
        ]
        self.locks = []
        for task in tasks:
            self.task_dir(task).mkdir(parents=True)
            self.hold(self.task_dir(task) / "supervisor.lock")
            self.status(task, state="running")
        (self.folder / "part.json").write_text(
            json.dumps(
                wire.to_wire(
                    wire.HostPart(
                        run="run",
                        job="job",
                        mode="async",
                        host="n1",
                        plan_digest="d",
                        release="r",
                        tasks=specs,
                    )
                )
            )
        )
        state = wire.HostRunState(
            run="run", job="job", host="n1", phase="committed", boot_id=boot_id()
        )
        (self.folder / "state.json").write_text(json.dumps(wire.to_wire(state)))

    def hold(self, path: Path) -> None:
        lock = path.open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.locks.append(lock)

    def task_dir(self, task: str) -> Path:
        paths = RunPaths(layout.host_dir(self.context.workdir, "job", "run", "n1"))
        return Path(paths.task_dir(task))

    def status(self, task: str, **fields: Any) -> None:
        status = wire.TaskStatus(run="run", task=task, host="n1", boot_id=boot_id(), **fields)
        temporary = self.task_dir(task) / "new"
        temporary.write_text(json.dumps(wire.to_wire(status)))
        temporary.rename(self.task_dir(task) / "status.json")

    def close(self) -> None:
        for lock in self.locks:
            lock.close()

    def logs(self, item: Any = None, **args: Any) -> tuple[Any, bytes]:
        got: list[bytes] = []
        call = Call(
            self.context,
            dict(args, run="run", job="job"),
            item=item or (lambda header, blob: got.append(blob)),
        )
        return run_follow.send_logs(call), b"".join(got)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path, ["worker:0", "ps:0"])
    yield made
    made.close()


def test_the_verb_sends_what_is_there_and_where_it_ended(host: Host) -> None:
    LogWriter(str(host.task_dir("worker:0")), 1 << 20).append(b"hello\nworld\n", 0, 1, 5.0)
    at_end = {"cursors": {"worker:0": 12}, "ends": {"worker:0": 12}}
    assert host.logs(tasks=["worker:0"]) == (
        {"ended": False, "left": False, **at_end},
        b"hello\nworld\n",
    )
    assert host.logs(tasks=["worker:0"], cursors={"worker:0": 6})[1] == b"world\n"
    assert host.logs(tasks=["worker:0"], last=1)[1] == b"world\n"
    assert host.logs(tasks=["worker:0"], since=6.0)[1] == b""
    assert host.logs(tasks=["elsewhere:3"]) == (
        {"ended": True, "left": False, "cursors": {}, "ends": {}},
        b"",
    )
    with pytest.raises(VerbError, match="not an offset"):
        host.logs(tasks=["worker:0"], cursors={"worker:0": -1})
    host.status("worker:0", state="ended", outcome="succeeded")
    assert host.logs(tasks=["worker:0"])[0]["ended"] is True


def test_times_are_sent_by_the_run_s_clock(host: Host) -> None:
    """The clock of the host is 3 s ahead of the run's clock. A line that was written at 5.0 by the
    host's clock is sent with the time 2.0, and `since` is compared with 2.0.
    """
    part = json.loads((host.folder / "part.json").read_text())
    (host.folder / "part.json").write_text(json.dumps({**part, "ahead_s": 3.0}))
    writer = LogWriter(str(host.task_dir("worker:0")), 1 << 20)
    writer.append(b"early\n", 0, 1, 1.0)
    writer.append(b"hello\n", 0, 1, 5.0)
    sent: list[Any] = []
    host.logs(lambda header, blob: sent.append((header["records"], blob)), tasks=["worker:0"])
    assert sent == [([[0, 0.0, 0, 1], [6, 2.0, 0, 1]], b"early\nhello\n")]
    assert host.logs(tasks=["worker:0"], since=2.0)[1] == b"hello\n"
    assert host.logs(tasks=["worker:0"], since=2.1)[1] == b""


def test_a_follower_gets_everything_and_ends_with_the_tasks(host: Host) -> None:
    got: list[bytes] = []
    seen, answer = threading.Event(), []

    def item(header: Any, blob: bytes) -> None:
        got.append(blob)
        seen.set()

    thread = threading.Thread(
        daemon=True, target=lambda: answer.append(host.logs(item, follow=True)[0])
    )
    thread.start()
    writers = {task: LogWriter(str(host.task_dir(task)), 1 << 20) for task in ("worker:0", "ps:0")}
    for task, writer in writers.items():
        writer.append(b"one ", 0, 1, 1.0)
        assert seen.wait(120)
        seen.clear()
        assert thread.is_alive()
        writer.append(b"last ", 0, 1, 1.0)
        host.status(task, state="ended", outcome="succeeded")
    thread.join(120)
    assert not thread.is_alive() and answer[0] == {
        "ended": True,
        "left": False,
        "cursors": {"worker:0": 9, "ps:0": 9},
        "ends": {},
    }
    assert sorted(b"".join(got).split()) == [b"last", b"last", b"one", b"one"]


def test_a_follower_of_a_dead_supervisor_ends_too(host: Host) -> None:
    host.close()
    assert host.logs(follow=True)[0]["ended"] is True


def test_a_pull_is_bounded(host: Host) -> None:
    writer = LogWriter(str(host.task_dir("worker:0")), 1 << 26)
    for _ in range(8):
        writer.append(b"x" * (1 << 20), 0, 1, 1.0)
    value, blob = host.logs(tasks=["worker:0"], limit_bytes=1 << 20, follow=True)
    assert value["ended"] is False and len(blob) == 1 << 20 == value["cursors"]["worker:0"]
