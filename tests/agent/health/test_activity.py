"""Test which events of real processes count as signs of life. The test sets the time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent import wire
from tfdeploy.agent.health import activity
from tfdeploy.agent.health.activity import LifeSigns, TaskActivity
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.network import tcp_diag
from tfdeploy.agent.log.format import LogWriter
from tfdeploy.agent.log.tf_messages import WaitMessages, parse_wait_messages
from tfdeploy.agent.run.folder import RunPaths

WAITING = (
    b"2026-11-21 07:00:00.1: I x.cc:1] CreateSession still waiting for response from worker: "
    b"/job:%s/replica:0/task:%d\n"
)
SAID = {
    "nothing": (b"", WaitMessages(False), b""),
    "a line": (b"step 1\n", WaitMessages(True), b""),
    "an empty line": (b"\n \n", WaitMessages(False), b""),
    "waits for one": (WAITING % (b"worker", 1), WaitMessages(False, ("worker:1",)), b""),
    "waits for two": (
        WAITING % (b"ps", 0) + WAITING % (b"worker", 12),
        WaitMessages(False, ("ps:0", "worker:12")),
        b"",
    ),
    "waits, and says something": (
        WAITING % (b"ps", 0) + b"step 2\n",
        WaitMessages(True, ("ps:0",)),
        b"",
    ),
    "waits for its model": (
        b"INFO:tensorflow:Waiting for model to be ready.  Ready_for_local_init_op:  None\n",
        WaitMessages(False),
        b"",
    ),
    "a bar": (b"10%\r20%\r", WaitMessages(True), b""),
    "a line without its end": (
        b"2026-11-21 07:00:00.1: I CreateSession sti",
        WaitMessages(False),
        b"2026-11-21 07:00:00.1: I CreateSession sti",
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_what_a_task_says(case: str) -> None:
    text, said, rest = SAID[case]
    assert parse_wait_messages(text) == (said, rest)


class Patient:
    """A process that TaskActivity observes. `observe_after(passed_s)` advances the clock and
    returns what TaskActivity reports.
    """

    def __init__(self, root: Path, script: str) -> None:
        self.paths = RunPaths(str(root / "job" / "runs" / "r1" / "hosts" / "n1"))
        os.makedirs(self.paths.task_dir("worker:0"))
        self.log = LogWriter(self.paths.task_dir("worker:0"), 1 << 20)
        self.log.append(b"begin\n", 0, 1, time.time())
        self.process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.port = int(self.line()) or None
        self.now = 1000.0
        self.vitals = TaskActivity(
            self.paths,
            wire.TaskSpec(
                task="worker:0", role="worker", index=0, argv=["x"], env={}, port=self.port
            ),
            self.now,
        )
        self.observe_after(1.0)
        self.observe_after(1.0)

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().decode().strip()

    def tell(self, text: str) -> None:
        """Send a line to the process, and wait until the process reports that it has acted on the
        line.
        """
        assert self.process.stdin
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()
        assert self.line() == "done"

    def observe_after(self, passed_s: float) -> LifeSigns:
        self.now += passed_s
        return self.vitals.observe(
            self.now,
            lambda: (
                {self.process.pid}
                | processes.descendants([self.process.pid], processes.all_processes())
            ),
            tcp_diag.read_traffic,
        )

    def say(self, text: bytes) -> None:
        self.log.append(text, 0, 1, time.time())


# Each program prints one line as soon as its start no longer uses the CPU. The line contains the
# program's port, or 0 if the program has no port.
IDLE = "import sys\nprint(0, flush=True)\nfor line in sys.stdin: print('done', flush=True)"
BUSY = """
import sys, time
print(0, flush=True)
for line in sys.stdin:
    until = time.process_time() + float(line)
    while time.process_time() < until: pass
    print('done', flush=True)
"""
CHILD = """
import os, sys, time
print(0, flush=True)
for line in sys.stdin:
    if not os.fork():
        while time.process_time() < float(line): pass
        os._exit(0)
    os.wait()
    print('done', flush=True)
"""
TALKS = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(server.getsockname()); other, _ = server.accept()
print(server.getsockname()[1], flush=True)
for line in sys.stdin:
    if line.strip() == "close": server.close()
    else:
        one.sendall(b"x" * int(line))
        left = int(line)
        while left: left -= len(other.recv(left))
    print('done', flush=True)
"""
READS = """
import sys
print(0, flush=True)
for line in sys.stdin:
    open("/dev/zero", "rb", 0).read(int(line))
    print("done", flush=True)
"""


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Callable[[str], Patient]]:
    made: list[Patient] = []

    def start(script: str) -> Patient:
        made.append(Patient(tmp_path / str(len(made)), script))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.communicate()
        each.log.close()


def test_one_that_does_nothing_stands_still(patient: Any) -> None:
    one = patient(IDLE)
    before = one.observe_after(1.0).still_s
    assert one.observe_after(60.0).still_s == before + 60.0


def test_its_own_words_are_life_and_waiting_is_not(patient: Any) -> None:
    one = patient(IDLE)
    one.say(b"step 1\n")
    assert one.observe_after(60.0).still_s == 0.0
    one.say(WAITING % (b"worker", 1))
    assert one.observe_after(10.0)[:3] == (10.0, ("worker:1",), 0.0)
    one.say(WAITING % (b"worker", 1))
    assert one.observe_after(10.0)[:3] == (20.0, ("worker:1",), 10.0)
    one.say(WAITING % (b"worker", 2))
    assert one.observe_after(20.0)[:3] == (40.0, ("worker:1", "worker:2"), 30.0)
    assert one.observe_after(10.0)[:3] == (50.0, ("worker:2",), 40.0)
    one.say(b"step 2\n")
    assert one.observe_after(1.0)[:3] == (0.0, (), 0.0)


def test_dots_without_an_end_are_life(patient: Any) -> None:
    one = patient(IDLE)
    one.say(b".")
    one.observe_after(1.0)
    one.say(b".")
    assert one.observe_after(60.0).still_s == 0.0


def test_computing_in_silence_is_life_and_a_little_of_it_is_not(patient: Any) -> None:
    one = patient(BUSY)
    one.tell("0.2")
    assert one.observe_after(5.0).still_s == 0.0
    one.tell("0.03")
    assert one.observe_after(5.0).still_s == 5.0


def test_a_child_that_computes_is_life_though_it_is_gone_by_now(patient: Any) -> None:
    one = patient(CHILD)
    one.tell("0.2")
    assert one.observe_after(5.0).still_s == 0.0


def test_bytes_on_a_connection_are_life_and_heartbeats_are_not(patient: Any) -> None:
    one = patient(TALKS)
    one.tell("200")
    before = one.observe_after(1.0).still_s
    one.tell("200")
    assert one.observe_after(5.0).still_s == before + 5.0
    one.tell("50000")
    assert one.observe_after(5.0).still_s == 0.0


def test_reading_a_file_is_life(patient: Any) -> None:
    one = patient(READS)
    one.tell("1000000")
    assert one.observe_after(5.0).still_s == 0.0


def test_a_port_that_is_closed_again_is_seen(patient: Any) -> None:
    one = patient(TALKS)
    assert one.observe_after(1.0).listens is True
    one.tell("close")
    assert one.observe_after(1.0).listens is False
    assert patient(IDLE).observe_after(1.0).listens is None


def test_a_stopped_process_is_seen_and_wakes_up_again(patient: Any) -> None:
    one = patient(BUSY)
    one.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, one.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert one.observe_after(30.0).stopped == one.process.pid
    one.process.send_signal(signal.SIGCONT)
    one.tell("0.2")
    assert one.observe_after(5.0)[:4] == (0.0, (), 0.0, 0)


def test_traffic_tells_of_each_connection_and_listener() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        other, _ = server.accept()
        with other:
            inode = os.fstat(one.fileno()).st_ino
            before = tcp_diag.read_traffic()
            assert before is not None
            one.sendall(b"x" * 1000)
            assert len(other.recv(2000)) == 1000
            other.sendall(b"x" * 500)
            assert len(one.recv(2000)) == 500
            after = tcp_diag.read_traffic()
            assert (
                after is not None
                and after.bytes_by_inode[inode] - before.bytes_by_inode[inode] == 1500
            )
            assert after.port_by_inode[os.fstat(server.fileno()).st_ino] == server.getsockname()[1]


def test_the_tree_of_a_task_is_all_below_its_supervisor() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        status = wire.TaskStatus(run="r1", task="worker:0", host="n1", supervisor_pid=os.getpid())
        assert child.pid in activity.living_pids(
            status, processes.all_processes
        ) and os.getpid() not in activity.living_pids(status, processes.all_processes)
        assert (
            activity.living_pids(
                wire.TaskStatus(run="r1", task="worker:0", host="n1"), processes.all_processes
            )
            == set()
        )
    finally:
        child.communicate(b"\n")
