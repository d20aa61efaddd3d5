"""`agent serve` as a real process on its own pipes: frames, streams, errors, silence, locks that go with the session."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tfdeploy import __version__
from tfdeploy.agent import hostfolder, layout, locks, runs, wire
from tfdeploy.agent.call import Call, Context, VerbError
from tfdeploy.agent.loglayout import LogWriter

WITHIN_S = 20.0
HOLDER = {"user": "ann", "machine": "desk", "pid": 7, "time": 1.0}


class Client:
    """The control side's half of the channel: sends requests, sorts what comes back by id."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        assert self.process.stdin and self.process.stdout
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.greeting = self.stdout.readline()
        frame = wire.read_frame(self.stdout)
        assert frame is not None
        self.hello = frame[0]["hello"]
        self.number = 0
        self.frames: dict[int, queue.Queue[tuple[dict[str, Any], bytes]]] = {}
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        while True:
            frame = wire.read_frame(self.stdout)
            if frame is None:
                return
            self.frames[frame[0]["id"]].put(frame)

    def write(self, header: dict[str, Any], blob: bytes = b"") -> None:
        self.stdin.write(wire.encode_frame(header, blob))
        self.stdin.flush()

    def ask(self, verb: str, blob: bytes = b"", **args: Any) -> int:
        self.number += 1
        self.frames[self.number] = queue.Queue()
        self.write({"id": self.number, "verb": verb, "args": args}, blob)
        return self.number

    def frame(self, number: int) -> tuple[dict[str, Any], bytes]:
        return self.frames[number].get(timeout=WITHIN_S)

    def answer(self, number: int) -> dict[str, Any]:
        """The frame that ends it; items before it are dropped."""
        while True:
            header, _ = self.frame(number)
            if "item" not in header:
                return header

    def call(self, verb: str, blob: bytes = b"", **args: Any) -> dict[str, Any]:
        return self.answer(self.ask(verb, blob, **args))

    def close(self) -> int:
        self.stdin.close()
        return self.process.wait(WITHIN_S)

    def clean(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.join(WITHIN_S)
        if not self.stdin.closed:
            self.stdin.close()
        self.stdout.close()


@pytest.fixture
def serve(tmp_path: Path, agent_dir: str) -> Iterator[Callable[..., Client]]:
    """serve() is a new session with the agent of one host; serve(code) runs that Python line before it."""
    made: list[Client] = []

    def start(before: str = "", **env: str) -> Client:
        command = [sys.executable, "-S", "-E", agent_dir, "serve", "--workdir", str(tmp_path)]
        if before:
            line = "import sys; sys.path.insert(0, %r); from tfdeploy.agent import frames, main; %s; main.main(sys.argv[1:])"
            command[3:4] = ["-c", line % (agent_dir, before)]
        made.append(Client(command, dict(os.environ, **env) if env else None))
        return made[-1]

    yield start
    for client in made:
        client.clean()


def test_it_greets_and_says_where_it_is(serve: Callable[..., Client], tmp_path: Path, agent_dir: str) -> None:
    client = serve(SSH_CONNECTION="192.0.2.1 1 192.0.2.2 22")
    assert client.greeting == wire.GREETING + b"\n"
    assert client.hello["workdir"] == str(tmp_path) and client.hello["agent"] == os.path.basename(agent_dir)
    assert client.hello["version"] == __version__ and client.hello["boot_id"] == hostfolder.boot_id()
    assert client.hello["ssh_connection"] == "192.0.2.1 1 192.0.2.2 22" and client.hello["pid"] == client.process.pid
    assert client.call("ping")["value"]["clock"] >= client.hello["clock"]
    assert client.close() == 0


def test_errors_have_a_code_and_end_nothing(serve: Callable[..., Client]) -> None:
    client = serve()
    assert client.call("dance")["error"]["code"] == "unknown_verb"
    assert client.call("run.status", job="job", run="none")["error"]["code"] == "unknown_run"
    assert client.call("run.status", job="../..", run="none")["error"]["code"] == "bad_name"
    bug = client.call("probe", python=7, ports=["a"])["error"]
    assert bug["code"] == "bad_argument"
    bug = client.call("release.commit", job="job", release="r", staging=str(7), keep_releases=[])["error"]
    assert bug["code"] == "bad_name"
    assert "value" in client.call("ping")


def test_a_bug_is_told_with_its_traceback(serve: Callable[..., Client]) -> None:
    client = serve("from tfdeploy.agent import runs; runs.VERBS['runs'] = lambda call: 1 / 0")
    error = client.call("runs")["error"]
    assert error["code"] == "bug" and "ZeroDivisionError" in error["details"]["traceback"]
    client = serve("from tfdeploy.agent import runs; runs.VERBS['runs'] = lambda call: {1j}")
    assert client.call("runs")["error"]["code"] == "bug"


@pytest.mark.fault("15 over quota")
@pytest.mark.parametrize("name, code", [("ENOSPC", "disk"), ("EDQUOT", "disk"), ("EROFS", "read_only"), ("EACCES", "permission")])
def test_what_the_disk_refuses_has_words_of_its_own(serve: Callable[..., Client], name: str, code: str, tmp_path: Path) -> None:
    path = str(tmp_path / "some" / "file")
    line = f"import errno; from tfdeploy.agent import runs\ndef fail(call): raise OSError(errno.{name}, 'x', {path!r})\n"
    before = "exec({!r})".format(line + "runs.VERBS['runs'] = fail")
    error = serve(before).call("runs")["error"]
    assert error["code"] == code and error["where"] == str(tmp_path / "some" / "file") and error["next"]
    assert ("free_bytes" in error["details"]) == (code == "disk")


def test_stray_prints_do_not_reach_the_channel(serve: Callable[..., Client]) -> None:
    line = (
        "import os; from tfdeploy.agent import runs\n"
        "def noisy(call):\n print('noise', flush=True); os.system('echo noise; cat'); return []\nruns.VERBS['runs'] = noisy"
    )
    assert serve(f"exec({line!r})").call("runs")["value"] == []


def test_files_are_private(serve: Callable[..., Client], tmp_path: Path) -> None:
    assert serve().call("data.begin", job="job", name="digits", bytes=1)["value"]
    assert (tmp_path / "job").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "job" / "data" / "digits.tfdeploy").stat().st_mode & 0o777 == 0o600


def test_silence_ends_it(serve: Callable[..., Client]) -> None:
    client = serve("frames.SILENCE_S = 0.3")
    client.call("lock", job="job", operation="sync", holder=HOLDER, wait_s=0)
    assert client.process.wait(WITHIN_S) == 0


def test_foreign_bytes_end_it(serve: Callable[..., Client]) -> None:
    client = serve("import os; os.dup2(os.open(os.devnull, os.O_WRONLY), 2)")
    client.stdin.write(b"GET / HTTP/1.1\r\n\r\n")
    client.stdin.flush()
    assert client.process.wait(WITHIN_S) == 0


def test_the_loser_of_a_lock_learns_who_holds_it(serve: Callable[..., Client], tmp_path: Path) -> None:
    first, second = serve(), serve()
    lock = {"job": "job", "operation": "sync", "holder": HOLDER, "wait_s": 0}
    assert first.call("lock", **lock)["value"] == {"held": True} == first.call("lock", **lock)["value"]
    error = second.call("lock", **lock)["error"]
    assert error["code"] == "locked" and error["details"] == dict(HOLDER, operation="sync")
    assert "ann@desk" in error["what"]
    assert second.call("lock", **dict(lock, job="other"))["value"] == {"held": True}
    assert first.call("unlock", job="job")["value"] == {} == first.call("unlock", job="job")["value"]
    assert second.call("lock", **lock)["value"] == {"held": True}
    second.close()
    assert os.listdir(layout.locks_dir(str(tmp_path), "job")) == []


@pytest.mark.parametrize("end", ["eof", "kill", "term"])
def test_a_lock_goes_with_its_session(serve: Callable[..., Client], end: str) -> None:
    first, second = serve(), serve()
    assert first.call("lock", job="job", operation="launch", holder=HOLDER, wait_s=0)["value"]
    waiting = second.ask("lock", job="job", operation="sync", holder=HOLDER, wait_s=WITHIN_S)
    assert second.call("ping")["value"]
    if end == "eof":
        first.close()
    else:
        first.process.send_signal(signal.SIGKILL if end == "kill" else signal.SIGTERM)
        first.process.wait(WITHIN_S)
    assert second.answer(waiting)["value"] == {"held": True}


def test_unlock_removes_what_a_killed_session_left_and_nobody_else_s(serve: Callable[..., Client], tmp_path: Path) -> None:
    first, second = serve(), serve()
    there = layout.locks_dir(str(tmp_path), "job")
    assert first.call("lock", job="job", operation="launch", holder=HOLDER, wait_s=0)["value"]
    assert second.call("unlock", job="job")["value"] == {}
    assert len(os.listdir(there)) == 1
    first.process.kill()
    first.process.wait(WITHIN_S)
    assert len(os.listdir(there)) == 1
    assert second.call("unlock", job="job")["value"] == {}
    assert os.listdir(there) == []


def test_waiting_for_a_lock_can_be_cancelled(serve: Callable[..., Client]) -> None:
    first, second = serve(), serve()
    assert first.call("lock", job="job", operation="launch", holder=HOLDER, wait_s=0)["value"]
    waiting = second.ask("lock", job="job", operation="sync", holder=HOLDER, wait_s=600)
    second.write({"cancel": waiting})
    assert second.answer(waiting)["error"]["code"] == "cancelled"


def make_run(workdir: Path, run: str, phase: str, boot: str | None = None, **status: Any) -> Path:
    """A run of one task, as its minder and supervisor would have left it."""
    folder = Path(layout.host_dir(str(workdir), "job", run, "n1"))
    task = Path(layout.task_dir(str(workdir), "job", run, "n1", "worker:0"))
    task.mkdir(parents=True)
    boot = boot or hostfolder.boot_id()
    spec = wire.TaskSpec("worker:0", "worker", 0, ["true"], {}, port=2222)
    part = wire.HostPart(run, "job", "async", "n1", "digest", "r1", tasks=[spec])
    state = wire.HostRunState(run, "job", "n1", phase=phase, boot_id=boot)
    (folder / "part.json").write_text(json.dumps(wire.to_wire(part)))
    (folder / "state.json").write_text(json.dumps(wire.to_wire(state)))
    if status:
        fields = wire.to_wire(wire.TaskStatus(run, "worker:0", "n1", boot_id=boot, **status))
        (task / "status.json").write_text(json.dumps(fields))
    return task


def test_a_stream_is_cancelled_while_others_are_answered(serve: Callable[..., Client], tmp_path: Path) -> None:
    task = make_run(tmp_path, "run", "committed", state="running")
    with (task / "supervisor.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        client, writer = serve(), LogWriter(str(task), 1 << 20)
        number = client.ask("logs", job="job", run="run", follow=True)
        for text in (b"first\n", b"second\n"):
            writer.append(text, 0, 1, 1.0)
            header, blob = client.frame(number)
            assert blob == text and header["item"]["task"] == "worker:0"
            assert client.call("ping")["value"]
        client.write({"cancel": number})
        assert client.answer(number)["value"] == {"ended": False, "left": False, "cursors": {"worker:0": 13}}


def test_a_reader_that_does_not_read_does_not_make_it_deaf(serve: Callable[..., Client], tmp_path: Path) -> None:
    task = make_run(tmp_path, "run", "ended", state="ended", outcome="succeeded")
    writer = LogWriter(str(task), 1 << 26)
    for _ in range(16):
        writer.append(b"x" * (1 << 20), 0, 1, 1.0)
    client = serve()
    numbers = [client.ask("logs", job="job", run="run") for _ in range(3)] + [client.ask("ping") for _ in range(300)]
    sizes = [0, 0, 0]
    for index, number in enumerate(numbers):
        header, blob = client.frame(number)
        while "item" in header:
            assert len(blob) <= 256 << 10
            sizes[index] += len(blob)
            header, blob = client.frame(number)
        assert "value" in header
    assert sizes == [16 << 20] * 3


def test_what_the_dead_could_not_write_is_worked_out(serve: Callable[..., Client], tmp_path: Path) -> None:
    make_run(tmp_path, "a-ended", "ended", state="ended", outcome="failed", exit_code=3)
    make_run(tmp_path, "b-rebooted", "committed", boot="an earlier one", state="running", pid=1)
    make_run(tmp_path, "c-orphan", "committed", state="running", pid=1)
    pending = make_run(tmp_path, "d-prepared", "prepared")
    live = make_run(tmp_path, "e-live", "committed", state="running", pid=1)
    (tmp_path / "job" / "runs" / "not-a-run").mkdir()
    with (live / "supervisor.lock").open("w") as one, (pending.parent.parent / "minder.lock").open("w") as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(two, fcntl.LOCK_EX)
        rows = {row["run"]: row for row in serve().call("runs", job="job")["value"]}
    told = {run: (row["live"], row["tasks"][0]["state"], row["tasks"][0]["reason"]) for run, row in rows.items()}
    assert told == {
        "a-ended": (False, "ended", None),
        "b-rebooted": (False, "lost", "host rebooted"),
        "c-orphan": (False, "lost", "its supervisor died"),
        "d-prepared": (True, "pending", None),
        "e-live": (True, "running", None),
    }
    assert rows["b-rebooted"]["tasks"][0]["outcome"] == "lost"


def test_a_task_that_ends_while_it_is_looked_at_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_run(tmp_path, "run", "committed", state="running")
    ended = wire.to_wire(wire.TaskStatus("run", "worker:0", "n1", state="ended", outcome="succeeded"))

    def ends_now(path: str) -> bool:
        (task / "status.json").write_text(json.dumps(ended))
        return False

    monkeypatch.setattr(runs, "is_locked", ends_now)
    paths = runs.run_paths(str(tmp_path), "job", "run")
    assert paths is not None and runs.task_status(paths, "worker:0").outcome == "succeeded"


def test_a_lock_that_is_let_go_while_it_is_taken_is_not_taken_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = {"job": "job", "operation": "sync", "holder": HOLDER, "wait_s": WITHIN_S}
    first, second, third = (Call(Context(str(tmp_path), ""), args) for _ in range(3))
    locks.lock(first)
    flock = fcntl.flock

    def after_the_holder_left(fd: int, how: int) -> None:
        if first.context.closing:
            locks.unlock(first)  # between the second one's open and its flock: that file has no name any more
        flock(fd, how)

    monkeypatch.setattr(locks.fcntl, "flock", after_the_holder_left)
    locks.lock(second)
    third.args["wait_s"] = 0
    with pytest.raises(VerbError, match="busy"):
        locks.lock(third)
    locks.unlock(second)


def test_runs_of_all_jobs_newest_first_and_their_plans(serve: Callable[..., Client], tmp_path: Path) -> None:
    for age, run in ((30, "old"), (10, "new"), (20, "middle")):
        make_run(tmp_path, run, "ended")
        path = Path(layout.host_dir(str(tmp_path), "job", run, "n1")) / "part.json"
        os.utime(path, (1000 - age, 1000 - age))
    (tmp_path / "job" / "runs" / "new" / "plan.json").write_text('{"run": "new"}')
    client = serve()
    assert [row["run"] for row in client.call("runs")["value"]] == ["new", "middle", "old"]
    assert client.call("runs", job="other")["value"] == []
    assert client.call("run.plan", job="job", run="new")["value"] == {"run": "new"}
    assert client.call("run.plan", job="job", run="old")["error"]["code"] == "unknown_run"


def test_hosts_that_share_a_workdir_know_their_own_part(tmp_path: Path) -> None:
    for host, name, boot in (("n1", "elsewhere", "b1"), ("n2", os.uname().nodename, "b2"), ("n3", None, "b3")):
        folder = Path(layout.host_dir(str(tmp_path), "job", "run", host))
        folder.mkdir(parents=True)
        (folder / "part.json").write_text("{}")
        state = wire.HostRunState("run", "job", host, boot_id=boot, hostname=name)
        (folder / "state.json").write_text(json.dumps(wire.to_wire(state)))
    assert hostfolder.own_host(str(tmp_path), "job", "run") == "n2"
    assert hostfolder.own_host(str(tmp_path), "job", "none") is None
