"""Test when a task counts as up. In these tests, the test process is the task."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tfdeploy.agent import wire
from tfdeploy.agent.health.activity import TaskActivity
from tfdeploy.agent.host.network import listening, sockets, tcp_diag
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.supervise.readiness import Readiness

AGE_S = 1.0


def spec_of(port: int) -> wire.TaskSpec:
    return wire.TaskSpec(
        task="worker:0", role="worker", index=0, argv=["x"], env={}, port=port, ready_after_s=100.0
    )


def test_the_socket_that_closes_its_port_is_not_its_server(tmp_path: Path) -> None:
    with sockets.hold_port(0) as guard:
        guard.listen(8)
        port, inode = int(guard.getsockname()[1]), os.fstat(guard.fileno()).st_ino
        ready = Readiness(spec_of(port), inode)
        activity = TaskActivity(RunPaths(str(tmp_path / "n1")), spec_of(port), 0.0, inode)
        assert not ready.is_up([os.getpid()], AGE_S) and Readiness(spec_of(port)).is_up(
            [os.getpid()], AGE_S
        )
        assert activity.observe(1.0, lambda: {os.getpid()}, tcp_diag.read_traffic).listens is None
        with sockets.hold_port(port, may_be_bound=True) as server:
            server.listen(8)
            assert ready.is_up([os.getpid()], AGE_S)
            assert _listens(activity, 3.0)
        assert not ready.is_up([os.getpid()], AGE_S) and not _listens(activity, 5.0)


def _listens(activity: TaskActivity, now: float) -> bool | None:
    """Observe the task three times. Return whether the third observation reports a listening
    socket.

    An observation looks for sockets only if there is no other sign that the task lives.
    """
    collected = [
        activity.observe(
            now + 1000.0 * number, lambda: {os.getpid()}, tcp_diag.read_traffic
        ).listens
        for number in range(1, 4)
    ]
    return collected[-1]


def test_a_socket_is_a_server_to_all_who_were_told_of_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert listening.has_listener([os.getpid()], server.getsockname()[1])
