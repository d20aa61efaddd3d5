"""Test `agent serve` as a real process that the test talks to through pipes: frames, streams,
errors, and a client that is silent.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from support.agent.client import make_run
from support.agent.cluster import NewClient
from tfdeploy import __version__
from tfdeploy.agent import frames
from tfdeploy.agent.host import boot_id
from tfdeploy.agent.listing import Listing
from tfdeploy.agent.log.format import LogWriter
from tfdeploy.model.answers.failures import format_advice

WITHIN_S = 20.0


def test_it_greets_and_says_where_it_is(serve: NewClient, tmp_path: Path, agent_dir: str) -> None:
    client = serve(SSH_CONNECTION="192.0.2.1 1 192.0.2.2 22")
    assert client.greeting == frames.GREETING + b"\n"
    assert client.hello["workdir"] == str(tmp_path) and client.hello["agent"] == os.path.basename(
        agent_dir
    )
    assert client.hello["version"] == __version__ and client.hello["boot_id"] == boot_id()
    assert (
        client.hello["ssh_connection"] == "192.0.2.1 1 192.0.2.2 22"
        and client.hello["pid"] == client.process.pid
    )
    assert client.call("ping")["value"]["clock"] >= client.hello["clock"]
    assert client.close() == 0


def test_errors_have_a_code_and_end_nothing(serve: NewClient) -> None:
    client = serve()
    assert client.call("dance")["error"]["code"] == "unknown_verb"
    assert client.call("run.status", job="job", run="none")["error"]["code"] == "unknown_run"
    assert client.call("run.status", job="../..", run="none")["error"]["code"] == "bad_name"
    bug = client.call("probe", python=7, ports=["a"])["error"]
    assert bug["code"] == "bad_argument"
    bug = client.call("release.commit", job="job", release="r", staging=str(7))["error"]
    assert bug["code"] == "bad_name"
    assert "value" in client.call("ping")


def test_a_bug_is_told_with_its_traceback(serve: NewClient) -> None:
    client = serve(
        "from tfdeploy.agent.serve.run import status as run_status; run_status.VERBS['runs'] = "
        "lambda call: 1 / 0"
    )
    error = client.call("runs")["error"]
    assert error["code"] == "bug" and "ZeroDivisionError" in error["details"]["traceback"]
    client = serve(
        "from tfdeploy.agent.serve.run import status as run_status; run_status.VERBS['runs'] = "
        "lambda call: {1j}"
    )
    assert client.call("runs")["error"]["code"] == "bug"


@pytest.mark.fault("15 over quota")
@pytest.mark.parametrize(
    "name, code",
    [("ENOSPC", "disk"), ("EDQUOT", "disk"), ("EROFS", "read_only"), ("EACCES", "permission")],
)
def test_what_the_disk_refuses_has_words_of_its_own(
    serve: NewClient, name: str, code: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "some" / "file")
    line = (
        "import errno; from tfdeploy.agent.serve.run import status\ndef fail(call): raise "
        f"OSError(errno.{name}, 'x', {path!r})\n"
    )
    before = "exec({!r})".format(line + "status.VERBS['runs'] = fail")
    error = serve(before).call("runs")["error"]
    assert (
        error["code"] == code
        and error["where"] == str(tmp_path / "some" / "file")
        and format_advice("n1", error["advice"], error["details"])
    )
    assert ("free_bytes" in error["details"]) == (code == "disk")


NO_THREAD = """
import threading
begin, refused = threading.Thread.start, []
def start(thread):
    if len(refused) < 4 and threading.active_count() > 1:
        refused.append(1)
        raise RuntimeError("can't start new thread")
    begin(thread)
threading.Thread.start = start
"""


def test_no_thread_for_a_moment_does_not_end_the_session(serve: NewClient) -> None:
    client = serve(f"exec({NO_THREAD!r})")
    assert client.call("ping")["value"] and client.call("ping")["value"]


MANY_THREADS = """
import resource, threading
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
from tfdeploy.agent.serve.run import status as run_status
meet = threading.Barrier(60, timeout=20)
run_status.VERBS["runs"] = lambda call: meet.wait() >= 0
"""


def test_many_verbs_at_once_fit_into_little_memory(serve: NewClient) -> None:
    client = serve(f"exec({MANY_THREADS!r})", MALLOC_ARENA_MAX="1")
    numbers = [client.ask("runs") for _ in range(60)]
    assert [client.answer(number)["value"] for number in numbers] == [True] * 60


def test_stray_prints_do_not_reach_the_channel(serve: NewClient) -> None:
    line = (
        "import os; from tfdeploy.agent.serve.run import status as run_status\n"
        "def noisy(call):\n print('noise', flush=True); os.system('echo noise; cat'); return "
        "[]\nrun_status.VERBS['runs'] = noisy"
    )
    assert serve(f"exec({line!r})").call("runs")["value"] == []


def test_files_are_private(serve: NewClient, tmp_path: Path) -> None:
    assert serve().call("data.lack", Listing().pack(), job="job", name="digits")["value"]
    assert (tmp_path / "job").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "job" / "data" / "digits.tfdeploy").stat().st_mode & 0o777 == 0o600


def test_silence_ends_it(serve: NewClient) -> None:
    client = serve("frames.SILENCE_S = 2.0")
    client.call("lock", job="job", operation="sync", holder={"user": "ann"}, wait_s=0)
    assert client.process.wait(WITHIN_S) == 0


def test_foreign_bytes_end_it(serve: NewClient) -> None:
    client = serve("import os; os.dup2(os.open(os.devnull, os.O_WRONLY), 2)")
    client.stdin.write(b"GET / HTTP/1.1\r\n\r\n")
    client.stdin.flush()
    assert client.process.wait(WITHIN_S) == 0


def test_a_stream_is_cancelled_while_others_are_answered(serve: NewClient, tmp_path: Path) -> None:
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
        assert client.answer(number)["value"] == {
            "ended": False,
            "left": False,
            "cursors": {"worker:0": 13},
            "ends": {},
        }


def test_a_reader_that_does_not_read_does_not_make_it_deaf(
    serve: NewClient, tmp_path: Path
) -> None:
    task = make_run(tmp_path, "run", "ended", state="ended", outcome="succeeded")
    writer = LogWriter(str(task), 1 << 26)
    for _ in range(16):
        writer.append(b"x" * (1 << 20), 0, 1, 1.0)
    client = serve()
    numbers = [client.ask("logs", job="job", run="run") for _ in range(3)] + [
        client.ask("ping") for _ in range(300)
    ]
    sizes = [0, 0, 0]
    for index, number in enumerate(numbers):
        header, blob = client.frame(number)
        while "item" in header:
            assert len(blob) <= 256 << 10
            sizes[index] += len(blob)
            header, blob = client.frame(number)
        assert "value" in header
    assert sizes == [16 << 20] * 3
