"""Test calls to a fleet (the connections to all hosts).

The caller gets the outcome of every host. A call ends in bounded time and can be interrupted.
Closing a fleet is quick.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.stopwatch import Stopwatch
from tfdeploy.errors import HostFailed, HostUnreachable
from tfdeploy.model.answers.hosts import PING, Clock
from tfdeploy.model.inventory import Host
from tfdeploy.transport.fleet import SshFleet
from tfdeploy.transport.ssh import connect


def test_every_outcome_is_collected_and_sessions_are_kept(
    shared_ssh_hosts: Any, listener: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "CONNECT_S", 5.0)
    good = [shared_ssh_hosts.host(f"a{number}").host for number in range(3)]
    down = replace(good[0], name="down", port=1)
    mute = replace(good[0], name="mute", port=listener(lambda sock: None))
    seen: list[str] = []
    with SshFleet() as fleet:
        hosts = (*good, down, mute)
        outcomes = fleet.each(
            hosts,
            lambda session: session.run(("echo hi",)).stdout,
            on_done=lambda name, _: seen.append(name),
        )
        assert list(outcomes) == ["a0", "a1", "a2", "down", "mute"]
        assert [outcomes[host.name] for host in good] == [b"hi\n"] * 3
        assert isinstance(outcomes["down"], HostUnreachable)
        assert isinstance(outcomes["mute"], HostUnreachable)
        assert sorted(seen) == sorted(outcomes)
        assert seen[-1] == "mute"
        assert fleet.session(good[0]) is fleet.session(good[0])


def test_host_missing_from_inventory_is_unreachable() -> None:
    with SshFleet() as fleet:
        outcomes = fleet.each((Host(name="n7", address=""),), lambda session: session)["n7"]
    assert (
        isinstance(outcomes, HostUnreachable)
        and (outcomes.exit_code, outcomes.where) == (4, "n7")
        and "inventory" in outcomes.what
    )


def test_bug_is_raised_and_error_of_host_stops_no_other_host(shared_ssh_hosts: Any) -> None:
    host = shared_ssh_hosts.host("b0").host

    def fail(session: Any) -> None:
        raise HostFailed("no", where=session.host.name)

    with SshFleet() as fleet:
        assert isinstance(fleet.each((host,), fail)["b0"], HostFailed)
        with pytest.raises(ZeroDivisionError):
            fleet.each((host,), lambda session: 1 // 0)


def test_parallel_limits_simultaneous_calls(shared_ssh_hosts: Any) -> None:
    sshd = shared_ssh_hosts.host("c0", "MaxStartups 100")
    hosts = tuple(replace(sshd.host, name=f"c{number}") for number in range(8))
    now, most, lock = 0, 0, threading.Lock()

    def count(session: Any) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        session.run(("true",))
        with lock:
            now -= 1

    with SshFleet(parallel=3) as fleet:
        fleet.each(hosts, count)
    assert 1 < most <= 3


def test_waiting_calls_run_on_all_hosts_at_once(shared_ssh_hosts: Any) -> None:
    """Test that `waits=True` runs the call on all hosts at once, even if the limit `parallel` is
    lower.
    """
    sshd = shared_ssh_hosts.host("w0", "MaxStartups 100")
    hosts = tuple(replace(sshd.host, name=f"w{number}") for number in range(8))
    together = threading.Barrier(len(hosts))
    with SshFleet(parallel=1) as fleet:
        fleet.each(hosts, lambda session: together.wait(120), waits=True)


@pytest.mark.fault("54 64 sessions with 256 descriptors")
def test_sixty_four_hosts_and_256_descriptors(shared_ssh_hosts: Any) -> None:
    sshd = shared_ssh_hosts.host("d0", "MaxStartups 200")
    hosts = tuple(replace(sshd.host, name=f"d{number}") for number in range(64))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with SshFleet() as fleet:
            outcomes = fleet.each(hosts, lambda session: session.agent().call(PING))
            assert all(isinstance(value, Clock) for value in outcomes.values()), outcomes
            watch = Stopwatch()
        assert watch.seconds < 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_silent_hosts_do_not_delay_others(
    shared_ssh_hosts: Any, listener: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "CONNECT_S", 6.0)
    good = shared_ssh_hosts.host("s0").host
    port = listener(lambda sock: None)
    mute = tuple(replace(good, name=f"mute{number}", port=port) for number in range(7))
    seen: list[str] = []
    with SshFleet(parallel=2) as fleet:
        watch = Stopwatch()
        fleet.each(
            (*mute, good),
            lambda session: session.run(("true",)),
            on_done=lambda name, _: seen.append(name),
        )
        assert watch.seconds < 2 * 6
        asked_again = Stopwatch()
        outcomes = fleet.each(mute, lambda session: session.run(("true",)))
        assert asked_again.seconds < 1.0, "a verb that asks twice waits for a silent host once"
        assert all(isinstance(error, HostUnreachable) for error in outcomes.values())
    assert seen[0] == good.name


def test_retry_connects_to_silent_host_again(
    shared_ssh_hosts: Any, listener: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "CONNECT_S", 4.0)
    dialled: list[socket.socket] = []
    mute = replace(
        shared_ssh_hosts.host("retried").host, name="mute", port=listener(dialled.append)
    )
    with SshFleet() as fleet:
        for _ in range(2):
            fleet.each((mute,), lambda session: session.run(("true",)), waits=True)
    assert len(dialled) == 2


def slowed(port: int, pause_s: float) -> Callable[[socket.socket], None]:
    """Return a handler that forwards each connection to the server on `port`.

    The handler waits `pause_s` seconds before it forwards each block from the server.
    """

    def talk(sock: socket.socket) -> None:
        upstream = socket.create_connection(("127.0.0.1", port))

        def carry(source: socket.socket, sink: socket.socket, wait_s: float) -> None:
            finished = threading.Event()
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    finished.wait(wait_s)
                    sink.sendall(data)
            upstream.close()

        threading.Thread(target=carry, args=(sock, upstream, 0.0), daemon=True).start()
        threading.Thread(target=carry, args=(upstream, sock, pause_s), daemon=True).start()

    return talk


def test_slow_host_is_not_given_up(
    shared_ssh_hosts: Any, listener: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "CONNECT_S", 3.0)
    sshd = shared_ssh_hosts.host("slow")
    port = listener(slowed(sshd.port, 0.9))
    line = (
        shared_ssh_hosts.known.read_text().splitlines()[-1].replace(f":{sshd.port} ", f":{port} ")
    )
    with shared_ssh_hosts.known.open("a") as known:
        known.write(line + "\n")
    began = time.monotonic()
    with SshFleet() as fleet:
        assert fleet.session(replace(sshd.host, port=port)).is_alive
        # The whole login takes longer than the timeout. It succeeds because sshd is never silent
        # for as long as the timeout.
        assert time.monotonic() - began > 3.0


FEW = """
import resource, sys
from tfdeploy.errors import Refused
from tfdeploy.model.answers.hosts import LOCK, PING
from tfdeploy.model.inventory import Host
from tfdeploy.transport.fleet import SshFleet

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[5]), int(sys.argv[6])))
hosts = tuple(Host(f"n{n}", "127.0.0.1", int(sys.argv[1]), *sys.argv[2:5]) for n in range(64))
lock = {"operation": "sync", "holder": {}, "wait_s": 0.0}
with SshFleet() as fleet:
    for _ in range(2):
        pinged = fleet.each(hosts, lambda session: session.agent().call(PING) is not None)
        failures = [found for found in pinged.values() if found is not True]
        print(list(pinged.values()).count(True), *failures, flush=True)
    locked = fleet.each(
        hosts, lambda session: session.agent().call(LOCK, {"job": session.host.name, **lock})
    )
    refused = [found for found in locked.values() if isinstance(found, Refused)]
    print(len(refused), *[error.next for error in refused[:1]])
"""


@pytest.mark.fault("54 64 hosts with 72 descriptors")
@pytest.mark.parametrize("most", [50, pytest.param(72, marks=pytest.mark.soak), 4096])
def test_sixty_four_hosts_and_72_descriptors(shared_ssh_hosts: Any, most: int) -> None:
    """Test that tfdeploy raises its own limit of open files in order to connect to 64 hosts.

    If the limit cannot be raised, tfdeploy connects to a few hosts at a time. An operation that
    needs all connections at once is refused.
    """
    host = shared_ssh_hosts.host(f"f{most}", "MaxStartups 200").host
    words = [
        str(host.port),
        str(host.user),
        str(host.identity_file),
        str(host.known_hosts),
        str(min(most, 72)),
        str(most),
    ]
    done = subprocess.run(
        [sys.executable, "-c", FEW, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["64", "64"], done.stdout
    assert (
        lines[2] == "0"
        if most >= 72
        else lines[2].endswith("`ulimit -n 1024`, or choose fewer hosts with --limit")
    ), lines


PROGRAM = """
import sys
from tfdeploy.model.inventory import Host
from tfdeploy.transport.fleet import SshFleet
host = Host("n1", "127.0.0.1", int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])
with SshFleet() as fleet:
    fleet.session(host)
    print("ready", flush=True)
    fleet.each((host,), lambda session: session.run(("sleep 60",)))
"""


def test_ctrl_c_ends_waiting(shared_ssh_hosts: Any) -> None:
    host = shared_ssh_hosts.host("f0").host
    words = [str(host.port), str(host.user), str(host.identity_file), str(host.known_hosts)]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    watch = Stopwatch()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert b"KeyboardInterrupt" in errors
    assert watch.seconds < 3


def test_bug_in_call_to_one_host_does_not_stop_others(shared_ssh_hosts: Any) -> None:
    host = shared_ssh_hosts.host("h0").host
    hosts = tuple(replace(host, name=f"h{number}") for number in range(4))
    served: list[str] = []

    def act(session: Any) -> None:
        if session.host.name == "h0":
            raise ZeroDivisionError
        served.append(session.host.name)

    with SshFleet(parallel=1) as fleet, pytest.raises(ZeroDivisionError):
        fleet.each(hosts, act)
    assert sorted(served) == ["h1", "h2", "h3"]
