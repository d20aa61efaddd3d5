"""The job's lock on every host: in one order, so that of many launches at once exactly one gets them all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfdeploy.errors import AgentError, Refused, TfdeployError
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host
from tfdeploy.operations.news import note
from tfdeploy.operations.outcomes import all_or_error, split
from tfdeploy.transport.seam import Fleet, Session

PATIENCE_S = 3600.0


@contextmanager
def locked(fleet: Fleet, hosts: tuple[Host, ...], job: str, operation: str, holder: dict[str, Any], emit: Emit) -> Iterator[None]:
    """Holds the job's lock on all hosts. A sync is waited for, a launch is not (Refused, with who, when, where).

    A lock ends with its session: nothing stays locked when tfdeploy is killed.
    """

    def take(session: Session) -> None:
        _take(session, job, operation, holder, emit)

    first, *rest = sorted(hosts, key=lambda host: host.name)
    try:
        all_or_error("lock", fleet.each((first,), take))
        if rest:
            all_or_error("lock", fleet.each(tuple(rest), take))
        yield
    finally:
        release(fleet, hosts, job)


def try_lock(
    fleet: Fleet, hosts: tuple[Host, ...], job: str, operation: str, holder: dict[str, Any], emit: Emit
) -> tuple[tuple[Host, ...], dict[str, TfdeployError]]:
    """(hosts whose lock is held now, the others' errors): for what may succeed on some hosts only. Let go with `release`."""

    def take(session: Session) -> None:
        _take(session, job, operation, holder, emit)

    _, failed = split(fleet.each(hosts, lambda session: session.agent()))  # all at once, before one waits for the first one
    ready = tuple(sorted((host for host in hosts if host.name not in failed), key=lambda host: host.name))
    failed.update(split({**fleet.each(ready[:1], take), **fleet.each(ready[1:], take)})[1])
    return tuple(host for host in hosts if host.name not in failed), failed


def release(fleet: Fleet, hosts: tuple[Host, ...], job: str) -> None:
    """Lets go of the job's lock wherever a session is open; errors do not matter, the session's end frees it too."""

    def let_go(session: Session) -> None:
        session.agent().call("unlock", {"job": job}, timeout_s=5.0)

    fleet.each(fleet.connected(hosts), let_go)


def _take(session: Session, job: str, operation: str, holder: dict[str, Any], emit: Emit) -> None:
    args = {"job": job, "operation": operation, "holder": holder, "wait_s": 0}
    host = session.host.name
    try:
        session.agent().call("lock", args)
        return
    except AgentError as error:
        if error.code != "locked":
            raise
        found = error.details
    if found.get("operation") == "launch" and operation == "launch":
        raise _busy(host, job, found)
    note(emit, f"waiting for {_holder(found)}", host=host)
    try:
        session.agent().call("lock", {**args, "wait_s": PATIENCE_S}, timeout_s=PATIENCE_S + 30)
    except AgentError as error:
        if error.code != "locked":
            raise
        raise _busy(host, job, error.details) from error


def _busy(host: str, job: str, found: dict[str, Any]) -> TfdeployError:
    return Refused(
        f"job {job} is locked by {_holder(found)}", where=host, next="wait for it, or `tfdeploy runs` shows what it started"
    )


def _holder(found: dict[str, Any]) -> str:
    who = found.get("holder") or found
    since = who.get("time")
    when = time.strftime(" since %Y-%m-%d %H:%M:%SZ", time.gmtime(since)) if isinstance(since, (int, float)) else ""
    operator = f"{who.get('user', '?')}@{who.get('machine', '?')} (pid {who.get('pid', '?')})"
    return f"the {found.get('operation', 'operation')} of {operator}{when}"
