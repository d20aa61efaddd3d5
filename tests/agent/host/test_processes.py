"""Test how the agent identifies real processes, so that it never signals an unrelated process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agent.interpreter import AGENT_PYTHON
from support.waiting import wait_for
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.network import listening, sockets, tcp_diag


@pytest.fixture
def child() -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def start(*argv: str, **options: Any) -> Any:
        made.append(subprocess.Popen(argv, **options))
        return made[-1]

    yield start
    for one in made:
        one.kill()
        one.communicate()


def test_a_process_knows_itself() -> None:
    me = processes.read_identity(os.getpid())
    assert me is not None and processes.is_alive(me)
    assert processes.read_identity(2**22 + 1) is None


def test_a_name_with_parentheses_is_read_right(child: Any, tmp_path: Any) -> None:
    odd = tmp_path / "a) Z 1 (b"
    os.symlink(AGENT_PYTHON, odd)
    one = processes.read_process(child(str(odd), "-c", "import time; time.sleep(100)").pid)
    assert one is not None and one.parent == os.getpid() and one.state != "Z"


def test_a_process_whose_first_thread_has_ended_is_alive_and_can_be_killed(child: Any) -> None:
    code = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(100,)).start(); "
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    headless = child(AGENT_PYTHON, "-c", code)
    wait_for(
        lambda: b") Z " in processes.read_file(headless.pid, "stat"), 20.0, "its first thread ends"
    )
    who = processes.read_identity(headless.pid)
    assert who is not None and processes.is_alive(who)
    assert processes.send_signal(who, signal.SIGKILL) and headless.wait() == -signal.SIGKILL


@pytest.mark.parametrize("lie", [{"start_ticks": 1}, {"boot_id": "another-boot"}])
def test_another_identity_with_this_pid_is_never_signalled(child: Any, lie: Any) -> None:
    bystander = child("sleep", "100")
    who = processes.read_identity(bystander.pid)
    assert who is not None
    assert not processes.send_signal(who._replace(**lie), signal.SIGKILL)
    assert bystander.poll() is None
    assert processes.send_signal(who, signal.SIGKILL) and bystander.wait() == -signal.SIGKILL


@pytest.mark.needs("choice of a pid")
def test_a_pid_that_was_used_again_is_a_stranger(child: Any) -> None:
    """Test that a new process is not taken for a recorded process that is dead, even if the kernel
    has given it the same pid.
    """
    first = child("sleep", "100")
    who = processes.read_identity(first.pid)
    assert who is not None
    first.kill()
    first.wait()
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(who.pid - 1))
        stranger = child("sleep", "100")
        again = processes.read_identity(stranger.pid)
        # The start times must differ; their unit is a hundredth of a second.
        if stranger.pid == who.pid and again != who:
            break
        stranger.kill()
        stranger.wait()
    else:
        pytest.skip("other processes were always faster")
    assert not processes.is_alive(who) and not processes.send_signal(who, signal.SIGKILL)
    assert stranger.poll() is None


def test_descendants_and_marked(child: Any) -> None:
    mark = {"TFDEPLOY_TEST_MARK": uuid.uuid4().hex}
    script = "setsid sleep 100 & sleep 100 & echo ready; wait"
    shell = child(
        "sh",
        "-c",
        script,
        stdout=subprocess.PIPE,
        env=dict(os.environ, **mark),
        start_new_session=True,
    )
    shell.stdout.readline()
    table = processes.all_processes()
    below = processes.descendants([shell.pid], table)
    try:
        assert len(below) == 2
        assert processes.find_by_environment(mark, table) >= below | {shell.pid}
        assert processes.find_by_environment(dict(mark, OTHER="x"), table) == set()
        with pytest.raises(ValueError):
            processes.find_by_environment({}, table)
    finally:
        processes.send_signals(below, table, signal.SIGKILL)


@pytest.mark.needs("environments of other accounts")
@pytest.mark.fault("60 marks in another user's process")
def test_marks_of_another_users_process_are_not_believed(child: Any) -> None:
    mark = {"TFDEPLOY_TEST_MARK": uuid.uuid4().hex}
    stranger = child("sleep", "100", env=mark, user=4711)
    own = child(
        "sh",
        "-c",
        "setpriv --reuid 4711 sleep 100 & echo ready; wait",
        stdout=subprocess.PIPE,
        env=dict(os.environ, **mark),
    )
    own.stdout.readline()
    wait_for(lambda: processes.read_environment(stranger.pid) == mark, 20, "the stranger has begun")
    table = processes.all_processes()
    assert stranger.pid not in processes.find_by_environment(
        mark, table
    ) and own.pid in processes.find_by_environment(mark, table)
    # A process that has changed its user is still a descendant of the process that started it.
    assert processes.descendants([own.pid], table)
    processes.send_signals(processes.descendants([own.pid], table), table, signal.SIGKILL)


def test_a_process_that_keeps_turning_into_another_program_is_found_at_every_look(
    child: Any, tmp_path: Path
) -> None:
    """Test that each check finds a process that executes other programs (exec) again and again.

    During exec, a process has no environment for a moment. One check in a hundred happens at such a
    moment.
    """
    mark = {"TFDEPLOY_TEST_MARK": uuid.uuid4().hex}
    again = tmp_path / "again.py"
    again.write_text(
        f"import os\nos.execv({sys.executable!r}, [{sys.executable!r}, '-S', '-E', "
        f"{str(again)!r}])\n"
    )
    restless = {
        child(AGENT_PYTHON, "-S", "-E", str(again), env=dict(os.environ, **mark)).pid
        for _ in range(3)
    }
    table = {pid: one for pid in restless if (one := processes.read_process(pid)) is not None}
    wait_for(
        lambda: processes.find_by_environment(mark, table) == restless, 20, "all of them have begun"
    )
    for _ in range(500):
        assert processes.find_by_environment(mark, table) == restless


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("0.0.0.0", 0))
        return int(one.getsockname()[1])


def test_a_held_port_is_refused_to_others_and_open_beside_reuseport() -> None:
    port = free_port()
    held = sockets.hold_port(port)
    try:
        with pytest.raises(OSError):
            sockets.hold_port(port)
        for options in ((), (socket.SO_REUSEADDR,)):
            with socket.socket() as other:
                for option in options:
                    other.setsockopt(socket.SOL_SOCKET, option, 1)
                with pytest.raises(OSError):
                    other.bind(("0.0.0.0", port))
        for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            with socket.socket(family) as task:
                task.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                task.bind((address, port))
                task.listen(1)
        sockets.hold_port(port, may_be_bound=True).close()
    finally:
        held.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("options", [(), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR,)])
def test_a_port_that_somebody_has_is_not_held(address: str, options: Any) -> None:
    with socket.socket() as taken:
        for option in options:
            taken.setsockopt(socket.SOL_SOCKET, option, 1)
        taken.bind((address, 0))
        taken.listen(1)
        with pytest.raises(OSError):
            sockets.hold_port(taken.getsockname()[1])


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
@pytest.mark.parametrize("kernel", ["sock_diag", "none"])
def test_who_listens_is_read_and_not_tried(
    child: Any, monkeypatch: pytest.MonkeyPatch, kernel: str, family: str
) -> None:
    if kernel == "none":
        monkeypatch.setattr(tcp_diag, "read_listeners", lambda: None)
    port = free_port()
    held = sockets.hold_port(port)
    script = (
        f"import socket,sys; s=socket.socket(socket.{family}); s.setsockopt(socket.SOL_SOCKET, "
        "socket.SO_REUSEPORT, 1);"
        f"s.bind(('', {port})); s.listen(1); print(1, flush=True); sys.stdin.read()"
    )
    try:
        assert not listening.describe_owners([port]) and not listening.has_listener(
            [os.getpid()], port
        )
        listener = child(
            sys.executable, "-c", script, stdout=subprocess.PIPE, stdin=subprocess.PIPE
        )
        listener.stdout.readline()
        assert listening.has_listener([listener.pid], port) and not listening.has_listener(
            [os.getpid()], port
        )
        assert listening.describe_owners([port])[port].startswith(
            f"pid {listener.pid}: {sys.executable}"
        )
    finally:
        held.close()
