"""Test a probe, which connects to many ports at once. For each port it reports whether the connect
succeeded, the bytes that were read, whether the peer closed the connection, and the error.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest

from support.stopwatch import Stopwatch
from tfdeploy.agent.host.network import port_probe, resolving
from tfdeploy.agent.host.network.port_probe import Target

HOME = "127.0.0.1"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((HOME, 0)) as one:
        yield one


def targets(*ports: int, most_bytes: int = 0, read_s: float = 0.0) -> list[Target]:
    row = resolving.resolve([HOME])[HOME][0]
    return [Target(row, port, most_bytes, read_s) for port in ports]


def test_answers_are_in_the_order_of_the_targets(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_probe, "AT_ONCE", 2)
    with socket.socket() as held:
        held.bind((HOME, 0))  # nothing listens on this port
        ports = [held.getsockname()[1], server.getsockname()[1]] * 2
        answers = port_probe.probe(targets(*ports), 3.0)
    assert [each.error for each in answers] == [errno.ECONNREFUSED, 0] * 2
    assert [each.connected for each in answers] == [False, True] * 2
    assert answers[1].source == HOME


def test_who_connects_and_says_nothing_is_waited_for_once(server: socket.socket) -> None:
    watch = Stopwatch()
    answers = port_probe.probe(
        targets(*[server.getsockname()[1]] * 20, most_bytes=9, read_s=0.3), 3.0
    )
    assert {(each.connected, each.error, each.data, each.ended) for each in answers} == {
        (True, 0, b"", False)
    }
    assert watch.seconds < 3.0


def test_names_that_lead_nowhere_have_a_reason() -> None:
    resolved = resolving.resolve([HOME, "no-such-host.invalid", "a" * 70 + ".x"])
    assert not isinstance(resolved[HOME], str)
    assert isinstance(resolved["no-such-host.invalid"], str) and isinstance(
        resolved["a" * 70 + ".x"], str
    )
