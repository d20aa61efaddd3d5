"""Test guarded ports: the kernel lets only the hosts of the run connect to them. In these tests,
127.0.0.2 and ::1 are addresses of the run, and 127.0.0.1 is the address of a stranger.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tfdeploy.agent import peer_filter
from tfdeploy.agent.health import reach
from tfdeploy.agent.host import descriptors
from tfdeploy.agent.host.network import free_ports, guarded_ports, sockets, steering
from tfdeploy.agent.host.network.guarded_ports import GuardedPorts

PEER, STRANGER = "127.0.0.2", "127.0.0.1"
Guard = Callable[..., GuardedPorts]


@pytest.fixture(autouse=True)
def _loopback_is_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_filter, "LOOPBACK", ())


@pytest.fixture
def port() -> int:
    with sockets.hold_port(0) as one:
        return int(one.getsockname()[1])


@pytest.fixture
def guard(port: int) -> Iterator[Guard]:
    made: list[GuardedPorts] = []

    def begin(
        may_be_bound: bool = False,
        inherited_descriptor: int | None = None,
        first_inode: int | None = None,
    ) -> GuardedPorts:
        made.append(GuardedPorts([PEER, "::1"], {}, {}))
        made[-1].guard_port(
            port, inherited_descriptor, partial(sockets.hold_port, port, may_be_bound), first_inode
        )
        made[-1].start()
        return made[-1]

    yield begin
    for each in made:
        each.close()


def serve(port: int) -> socket.socket:
    """Bind the port and listen on it, as a task does."""
    one = sockets.hold_port(port, may_be_bound=True)
    one.listen(64)
    # When the connect() of an admitted client returns, its connection is already in the accept
    # queue. So a short timeout is enough.
    one.settimeout(0.05)
    return one


def is_let_in(server: socket.socket, port: int, source: str) -> bool:
    """Return whether the server gets connections from the address `source`. All six attempts must
    have the same result.
    """
    reached = set()
    for _ in range(6):
        to = ("::1", port) if ":" in source else (STRANGER, port)
        try:
            with socket.create_connection(to, timeout=5.0, source_address=(source, 0)):
                server.accept()[0].close()
                reached.add(True)
        except (TimeoutError, ConnectionResetError):
            reached.add(False)
    assert len(reached) == 1, "some were let in and some were not"
    return reached.pop()


def closed_to_strangers(server: socket.socket, port: int) -> bool:
    return (
        is_let_in(server, port, PEER),
        is_let_in(server, port, "::1"),
        is_let_in(server, port, STRANGER),
    ) == (
        True,
        True,
        False,
    )


def test_a_peer_reaches_the_task_and_a_stranger_does_not(guard: Guard, port: int) -> None:
    guard()
    # The second iteration stands for the task's next attempt.
    for _ in range(2):
        with serve(port) as server:
            assert closed_to_strangers(server, port)


def test_one_that_is_left_to_another_process_keeps_the_port_shut(guard: Guard, port: int) -> None:
    first = guard()
    kept = os.dup(first.listening_descriptors()[port])
    with serve(port) as server:
        first.close()
        assert closed_to_strangers(server, port)
        guard(may_be_bound=True, inherited_descriptor=kept)
        assert closed_to_strangers(server, port)
    with serve(port) as server:
        assert closed_to_strangers(server, port)


def test_one_that_comes_behind_the_task_closes_the_port_that_was_open(
    guard: Guard, port: int
) -> None:
    with serve(port) as server:
        assert is_let_in(server, port, STRANGER)
        guarded = guard(may_be_bound=True)
        assert closed_to_strangers(server, port)
    guarded.prepare_task_start(port)
    with serve(port) as server:
        assert closed_to_strangers(server, port)


def inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


def test_one_that_only_the_task_has_keeps_the_port_shut_and_the_next_minder_comes_behind_it(
    guard: Guard, port: int
) -> None:
    first = guard()
    kept = os.dup(first.listening_descriptors()[port])
    with serve(port) as server:
        first.close()
        assert closed_to_strangers(server, port)
        second = guard(may_be_bound=True, first_inode=inode(kept))
        assert closed_to_strangers(server, port)
        # One process of the task ends here, while another process of the task goes on.
        os.close(kept)
        assert closed_to_strangers(server, port)
    second.prepare_task_start(port)
    with serve(port) as server:
        assert closed_to_strangers(server, port)


def test_one_that_a_process_took_away_does_not_open_the_port_to_the_next_attempt(
    guard: Guard, port: int
) -> None:
    first = guard()
    kept = os.dup(first.listening_descriptors()[port])
    first.close()
    second = guard(may_be_bound=True, first_inode=inode(kept))
    second.prepare_task_start(port)
    with serve(port) as server:
        assert closed_to_strangers(server, port)
        os.close(kept)
        assert not is_let_in(server, port, STRANGER)
    second.prepare_task_start(port)
    with serve(port) as server:
        assert closed_to_strangers(server, port)


def test_one_that_came_behind_the_task_is_left_to_another_minder(guard: Guard, port: int) -> None:
    with serve(port) as server:
        first = guard(may_be_bound=True)
        kept = os.dup(first.listening_descriptors()[port])
        first.close()
        second = guard(may_be_bound=True, inherited_descriptor=kept)
        assert second.admit_if_new("127.0.0.3") and closed_to_strangers(server, port)
    second.prepare_task_start(port)
    with serve(port) as server:
        assert closed_to_strangers(server, port)


def test_an_address_for_which_there_is_no_room_does_no_harm(
    guard: Guard, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = guard()
    monkeypatch.setattr(guarded_ports, "MOST_LEARNED", 1)
    assert guarded.admit_if_new("127.0.0.3")
    with pytest.raises(OSError, match="too many addresses"):
        guarded.admit_if_new("127.0.0.4")
    assert guarded.host_by_ip == {"127.0.0.3": ""} and not guarded.is_admitted("127.0.0.4")


def test_one_host_of_the_run_gets_few_of_the_filters_places(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = guard()
    monkeypatch.setattr(guarded_ports, "MOST_PER_HOST", 1)
    assert guarded.admit_if_new("127.0.0.3", "n2") and guarded.admit_if_new("127.0.0.4", "n3")
    with pytest.raises(OSError, match="too many addresses"):
        guarded.admit_if_new("127.0.0.5", "n2")
    assert guarded.record_refused_if_new("127.0.0.6", "n2") and not guarded.record_refused_if_new(
        "127.0.0.7", "n2"
    )
    assert guarded.refused_ip_by_host == {"n2": "127.0.0.6"}


def test_what_was_learned_is_known_to_the_next_minder(port: int) -> None:
    guarded = GuardedPorts([PEER], {"127.0.0.3": "n2", "no address": "n2"}, {})
    assert guarded.is_admitted("127.0.0.3") and guarded.host_by_ip == {"127.0.0.3": "n2"}


def leave_time_wait(port: int, server: socket.socket, reuse: bool = False) -> None:
    """Put the port in TIME_WAIT: connect to the server over IPv4 and IPv6, and let the server close
    these connections first.

    If `reuse` is True, the server sets SO_REUSEADDR, as TensorFlow does.
    """
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
    for source, to in ((PEER, STRANGER), ("::1", "::1")):
        with socket.create_connection((to, port), timeout=5.0, source_address=(source, 0)) as one:
            server.accept()[0].close()
            assert one.recv(1) == b""


def time_waits(port: int) -> int:
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path("/proc/net", name).read_text().splitlines()
    ]
    return sum(row[3] == "06" and row[1].endswith(f":{port:04X}") for row in rows)


def test_connections_that_have_ended_hinder_neither_a_minder_nor_the_task(
    guard: Guard, port: int
) -> None:
    with serve(port) as server:
        leave_time_wait(port, server, reuse=True)
    # This guard belongs to the next run, which uses the same port.
    first = guard()
    assert time_waits(port) > 0
    # This server plays the role of a task of the next run.
    with serve(port) as server:
        assert closed_to_strangers(server, port)
        leave_time_wait(port, server)
        kept = os.dup(first.listening_descriptors()[port])
        first.close()
        # A new guard takes over the port while the task still has a socket that the first guard
        # made.
        second = guard(may_be_bound=True, first_inode=inode(kept))
        os.close(kept)
    # This server plays the role of the next attempt of the task.
    with serve(port) as server:
        assert closed_to_strangers(server, port)
        leave_time_wait(port, server)
    second.close()
    # A new guard takes over the port while no process listens on it.
    third = guard(may_be_bound=True)
    with serve(port) as server:
        third.close()
        leave_time_wait(port, server)
        # A new guard takes over the port while the task listens on it.
        guard(may_be_bound=True)
        assert closed_to_strangers(server, port)
    assert time_waits(port) > 0


def test_an_address_that_was_proved_is_let_in_from_then_on(guard: Guard, port: int) -> None:
    guarded = guard()
    with serve(port) as server:
        assert guarded.admit_if_new("::ffff:" + STRANGER) and not guarded.admit_if_new(STRANGER)
        assert is_let_in(server, port, STRANGER)


def test_before_a_task_listens_a_peer_learns_that_it_is_let_in(guard: Guard, port: int) -> None:
    guarded = guard()
    knock = f"127.0.0.1:{port}"
    assert reach.try_ports([knock], guarded=[knock]) == {knock: f"turned away, from {STRANGER}"}
    guarded.admit_if_new(STRANGER)
    assert reach.try_ports([knock], guarded=[knock]) == {knock: "closed"}


def test_descriptors_are_left_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    left = descriptors.popen_arguments({2221: reading, 2222: writing})
    monkeypatch.setenv(
        descriptors.VARIABLE, left["env"][descriptors.VARIABLE] + ",2223=987654,,x=y"
    )
    assert descriptors.inherited_descriptors() == {2221: reading, 2222: writing}
    assert descriptors.VARIABLE not in os.environ and descriptors.inherited_descriptors() == {}
    assert left["pass_fds"] == [reading, writing] and not os.get_inheritable(reading)
    os.close(reading), os.close(writing)


def test_this_kernel_steers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert steering.find_filter_problem() == "" and steering.most_instructions() >= 1000


def test_the_port_is_free_for_the_next_run_although_callers_were_hung_up_on(
    guard: Guard, port: int
) -> None:
    first = guard()
    for source in (PEER, "::1"):
        with socket.create_connection(
            (source, port), timeout=5.0, source_address=(source, 0)
        ) as one:
            assert one.recv(1) == b""
    first.close()
    assert free_ports.is_free(port)
    with serve(port) as server:
        server.close()
    guard()


@pytest.mark.needs("network namespaces", "port filters")
def test_a_kernel_with_little_room_says_how_long_a_filter_may_be() -> None:
    look = (
        "from tfdeploy.agent.host.network import steering; "
        "print(repr(steering.find_filter_problem()), "
        "steering.most_instructions())"
    )
    script = (
        f"ip link set lo up; echo 20480 > /proc/sys/net/core/optmem_max; {sys.executable} -c "
        f'"{look}"'
    )
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["''", "1250"], done
