"""The job's lock on every host: in one order, so that of many launches at once exactly one gets them all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tfdeploy.errors import AgentError, Refused, TfdeployError
from tfdeploy.model.answers.bounds import Seconds
from tfdeploy.model.answers.hosts import LOCK, UNLOCK, LockHolder
from tfdeploy.model.answers.reading import BadShape, read
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host
from tfdeploy.operations.emit import note
from tfdeploy.operations.outcomes import all_or_error, split
from tfdeploy.transport.protocols import Fleet, Session

PATIENCE_S = 3600.0
MEANWHILE_S = 2.0


@contextmanager
def locked(fleet: Fleet, hosts: tuple[Host, ...], job: str, operation: str, holder: LockHolder, emit: Emit) -> Iterator[None]:
    """Holds the job's lock on all hosts. A sync is waited for, a launch is not (Refused, with who, when, where).

    A lock ends with its session: nothing stays locked when tfdeploy is killed.
    """
    asking = _Asking(fleet, job, operation, holder, emit)
    all_or_error("reaching all hosts", fleet.each(hosts, lambda session: session.agent()))  # who is away is told of all at once
    try:
        all_or_error("lock", asking.take_all(tuple(sorted(hosts, key=lambda host: host.name)), all_or_none=True))
        yield
    finally:
        release(fleet, hosts, job)


def try_lock(
    fleet: Fleet, hosts: tuple[Host, ...], job: str, operation: str, holder: LockHolder, emit: Emit
) -> tuple[tuple[Host, ...], dict[str, TfdeployError]]:
    """(hosts whose lock is held now, the others' errors): for what may succeed on some hosts only. Let go with `release`."""
    _, failed = split(fleet.each(hosts, lambda session: session.agent()))  # all at once, before one waits for the first one
    ready = tuple(sorted((host for host in hosts if host.name not in failed), key=lambda host: host.name))
    failed.update(split(_Asking(fleet, job, operation, holder, emit).take_all(ready, all_or_none=False))[1])
    return tuple(host for host in hosts if host.name not in failed), failed


@dataclass(frozen=True)
class _Asking:
    """For the lock of many hosts. Who waits for one holds only those before it in the order of names: so no two wait for
    each other, whichever hosts each of them wants."""

    fleet: Fleet
    job: str
    operation: str
    holder: LockHolder
    emit: Emit

    def take_all(self, hosts: tuple[Host, ...], *, all_or_none: bool) -> dict[str, TfdeployError | None]:
        """The first one, then the rest at once; where one of these is held by somebody, one after the other from there on."""
        found = self.fleet.each(hosts[:1], lambda session: self._take(session, 0.0))
        if all_or_none and split(found)[1]:
            return found
        found.update(self.fleet.each(hosts[1:], self._ask))
        at = next((n for n, host in enumerate(hosts) if _is_locked(found[host.name])), None)
        if at is None:
            return found
        release(self.fleet, hosts[at:], self.job)
        for host in hosts[at:]:
            if not isinstance(found[host.name], TfdeployError) or _is_locked(found[host.name]):
                found.update(self.fleet.each((host,), lambda session: self._take(session, MEANWHILE_S)))
                if all_or_none and isinstance(found[host.name], TfdeployError):
                    return {name: one for name, one in found.items() if name == host.name or not _is_locked(one)}
        return found

    def _ask(self, session: Session, wait_s: float = 0.0) -> None:
        args = {"job": self.job, "operation": self.operation, "holder": self.holder, "wait_s": wait_s}
        session.fences[self.job] = session.agent().call(LOCK, args, timeout_s=wait_s + 60.0).fence

    def _take(self, session: Session, meanwhile_s: float) -> None:
        """Waits for its turn; of a launch, for another launch only `meanwhile_s`: it may be about to lose on another host."""
        host = session.host.name
        try:
            self._ask(session, meanwhile_s)
            return
        except AgentError as error:
            if error.code != "locked":
                raise
            found = error.details
        if found.get("operation") == "launch" and self.operation == "launch":
            raise _busy(host, self.job, found)
        note(self.emit, f"waiting for {_holder(found)}", host=host)
        try:
            self._ask(session, PATIENCE_S)
        except AgentError as error:
            if error.code != "locked":
                raise
            raise _busy(host, self.job, error.details) from error


def _is_locked(found: TfdeployError | None) -> bool:
    return isinstance(found, AgentError) and found.code == "locked"


def release(fleet: Fleet, hosts: tuple[Host, ...], job: str) -> None:
    """Lets go of the job's lock wherever a session is open; errors do not matter, the session's end frees it too."""

    def let_go(session: Session) -> None:
        session.fences.pop(job, None)
        session.agent().call(UNLOCK, {"job": job}, timeout_s=5.0)

    fleet.each(fleet.connected(hosts), let_go)


def _busy(host: str, job: str, found: Mapping[str, object]) -> TfdeployError:
    return Refused(
        f"job {job} is locked by {_holder(found)}", where=host, next="wait for it, or `tfdeploy runs` shows what it started"
    )


def _holder(found: Mapping[str, object]) -> str:
    """In words, whatever the host says of it."""
    try:
        since = time.strftime(" since %Y-%m-%d %H:%M:%SZ", time.gmtime(read(found.get("time"), Seconds)))
    except BadShape:
        since = ""
    operator = f"{found.get('user', '?')}@{found.get('machine', '?')} (pid {found.get('pid', '?')})"
    return f"the {found.get('operation', 'operation')} of {operator}{since}"
