"""For verbs that end things: what one host at a time could not be told is tried again, within the verb's patience."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.model.inventory import Host
from tfdeploy.transport.protocols import Fleet, Session

PATIENCE_S = 60.0
V = TypeVar("V")
Again = Callable[[dict[str, HostUnreachable]], None]


def persist(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    action: Callable[[Session], V],
    *,
    patience_s: float = PATIENCE_S,
    on_done: Callable[[str, V | TfdeployError], None] | None = None,
    on_again: Again | None = None,
) -> dict[str, V | TfdeployError]:
    """`fleet.each` of an idempotent action. A host whose answer was lost, or that was too slow to let us in, is asked
    again; none is once no host has answered for `patience_s`. `on_again`: the errors of those that are asked again,
    before that."""
    answered = time.monotonic()

    def done(name: str, result: V | TfdeployError) -> None:
        nonlocal answered
        if not isinstance(result, HostUnreachable):
            answered = time.monotonic()
        if on_done is not None:
            on_done(name, result)

    found = fleet.each(hosts, action, on_done=done, waits=True)
    tries = 1
    while time.monotonic() < answered + patience_s and (again := _worth(found, tries)):
        if on_again is not None:
            on_again(again)
        found.update(fleet.each(tuple(host for host in hosts if host.name in again), action, on_done=done, waits=True))
        tries += 1
    return {host.name: found[host.name] for host in hosts}


def _worth(found: dict[str, V | TfdeployError], tries: int) -> dict[str, HostUnreachable]:
    return {name: error for name, error in found.items() if isinstance(error, HostUnreachable) and error.retries >= tries}
