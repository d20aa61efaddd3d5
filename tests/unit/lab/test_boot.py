"""Test how processes of a lab (simulated hosts on this machine) start in new namespaces, and the
first message that such a process sends.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable

import pytest

from tfdeploy.lab.boot import fork_orphan


def test_pid_is_received_before_first_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork, forks = os.fork, [0]

    def slow() -> int:
        pid = fork()
        forks[0] += 1
        # Delay the process between the two forks, which reports the pid of its child.
        if forks[0] == 2 and pid:
            select.select([], [], [], 0.2)
        return pid

    def main(report: Callable[[str], None], wait: Callable[[], None]) -> None:
        report("up")
        os._exit(0)

    monkeypatch.setattr(os, "fork", slow)
    process = fork_orphan("one", 0, main)
    assert process.pid > 1
    assert process.read_report() == "up"
    os.close(process.report_fd)
    os.close(process.release_fd)
