"""Test that a fleet (the sessions with all hosts) ends its own rsync transfers, but not those of
another fleet in the same process.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tfdeploy.transport.rsync import running
from tfdeploy.transport.ssh.target import Target

TARGET = Target(hostname="192.0.2.1", port=22, user="ml")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as started:
        running.add_transfer(started, TARGET)
        yield started
        started.kill()
        running.remove_transfer(started)


def test_only_process_of_given_target_ends(process: subprocess.Popen[bytes]) -> None:
    running.end_transfers([replace(TARGET)])
    assert not running.remove_transfer(process)
    running.add_transfer(process, TARGET)
    running.end_transfers([TARGET])
    assert process.wait(60) != 0 and running.remove_transfer(process)
