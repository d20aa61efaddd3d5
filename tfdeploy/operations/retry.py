"""Retry unreachable hosts for a limited time, for verbs that stop or abort a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.model.inventory import Hosts, hosts_named
from tfdeploy.transport.protocols import Fleet, OnDone, Outcomes, Session

PATIENCE_S = 60.0  # if no host has answered for this many seconds, there are no more retries
V = TypeVar("V")
OnRetry = Callable[[dict[str, HostUnreachable]], None]


def each_with_retries(
    fleet: Fleet,
    hosts: Hosts,
    action: Callable[[Session], V],
    *,
    patience_s: float = PATIENCE_S,
    on_done: OnDone[V] | None = None,
    on_retry: OnRetry | None = None,
) -> Outcomes[V]:
    """Run an idempotent action on all hosts, and retry it on unreachable or too slow hosts.

    If no host has answered for `patience_s` seconds, there are no more retries. Before each retry,
    `on_retry` is called with the errors of the hosts that are tried again.
    """
    last_answer_at = time.monotonic()

    def done(name: str, result: V | TfdeployError) -> None:
        nonlocal last_answer_at
        if not isinstance(result, HostUnreachable):
            last_answer_at = time.monotonic()
        if on_done is not None:
            on_done(name, result)

    outcomes = fleet.each(hosts, action, on_done=done, waits=True)
    attempts = 1
    while time.monotonic() < last_answer_at + patience_s and (
        retried := _retryable_errors(outcomes, attempts)
    ):
        if on_retry is not None:
            on_retry(retried)
        outcomes.update(
            fleet.each(
                hosts_named(hosts, retried),
                action,
                on_done=done,
                waits=True,
            )
        )
        attempts += 1
    return {host.name: outcomes[host.name] for host in hosts}


def _retryable_errors(outcomes: Outcomes[V], attempts: int) -> dict[str, HostUnreachable]:
    """Return the errors of the hosts on which a further attempt may help.

    `attempts` is the number of attempts so far.
    """
    return {
        name: error
        for name, error in outcomes.items()
        if isinstance(error, HostUnreachable) and error.retries >= attempts
    }
