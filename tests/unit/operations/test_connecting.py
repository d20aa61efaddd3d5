"""Test what is known while the agents of hosts start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from support.stopwatch import DEADLINE_S
from tfdeploy.errors import HostUnreachable
from tfdeploy.operations.connecting import Connecting

OnMissing = Callable[[], object]


class SlowFleet:
    """A fleet with one host. `start_agent` starts its agent."""

    def __init__(self, start_agent: Callable[[OnMissing], object]) -> None:
        self._session = SimpleNamespace(agent=start_agent)

    def each(self, hosts: object, action: Callable[[Any], object]) -> dict[str, object]:
        try:
            return {"n1": action(self._session)}
        except HostUnreachable as error:
            return {"n1": error}


def connect(start_agent: Callable[[OnMissing], object]) -> Connecting:
    fleet: Any = SlowFleet(start_agent)
    return Connecting(fleet, ())


def test_missing_agent_is_known_before_agent_is_up() -> None:
    may_start = threading.Event()

    def install(on_missing: OnMissing) -> None:
        on_missing()
        assert may_start.wait(DEADLINE_S)

    connecting = connect(install)
    assert connecting.is_agent_missing()
    may_start.set()
    assert connecting.wait_for_failed() == {}


def test_no_agent_is_missing_if_all_are_up() -> None:
    connecting = connect(lambda _: None)
    assert not connecting.is_agent_missing()
    assert connecting.wait_for_failed() == {}


def fail_to_connect(_: OnMissing) -> None:
    raise HostUnreachable("port 22 is closed", where="n1")


def test_host_that_failed_is_returned() -> None:
    connecting = connect(fail_to_connect)
    assert not connecting.is_agent_missing()
    assert [error.what for error in connecting.wait_for_failed().values()] == ["port 22 is closed"]


@pytest.mark.parametrize("error", [RuntimeError, OSError])
def test_unexpected_error_is_left_to_next_call(error: type[Exception]) -> None:
    def start_agent(_: OnMissing) -> None:
        raise error

    connecting = connect(start_agent)
    assert not connecting.is_agent_missing()
    assert connecting.wait_for_failed() == {}
