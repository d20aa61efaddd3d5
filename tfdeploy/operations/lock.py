"""The job's lock on every host, taken in the order of host names, so that exactly one of many launches gets them all."""

from __future__ import annotations

import contextlib
import re
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
LAUNCH_WAIT_S = 2.0
UNLOCK_S = 5.0
_SAFE_WORD = re.compile(r"[\w.@+-]{1,128}\Z")


@contextmanager
def locked(fleet: Fleet, hosts: tuple[Host, ...], job: str, operation: str, holder: LockHolder, emit: Emit) -> Iterator[None]:
    """Holds the job's lock on all hosts. Waits for a sync. A launch does not wait for a launch: it raises Refused.

    A lock ends with its session: nothing stays locked when tfdeploy is killed.
    """
    requests = _LockRequests(fleet, job, operation, holder, emit)
    all_or_error("reaching all hosts", fleet.each(hosts, lambda session: session.agent()))  # one error for all unreachable hosts
    try:
        all_or_error("lock", requests.acquire_all(tuple(sorted(hosts, key=lambda host: host.name)), all_or_none=True))
        yield
    finally:
        release(fleet, hosts, job)


def try_lock(
    fleet: Fleet, hosts: tuple[Host, ...], job: str, operation: str, holder: LockHolder, emit: Emit, soon: tuple[str, ...] = ()
) -> tuple[tuple[Host, ...], dict[str, TfdeployError]]:
    """(hosts whose lock is held now, the others' errors), for a verb that may succeed on some hosts only. Ends with `release`.

    `soon`: verbs of the agent that will be asked; it gets ready for them."""
    # connects to all at once, before waiting for the first lock
    _, failed = split(fleet.each(hosts, lambda session: session.agent()))
    ready = tuple(sorted((host for host in hosts if host.name not in failed), key=lambda host: host.name))
    failed.update(split(_LockRequests(fleet, job, operation, holder, emit, soon).acquire_all(ready, all_or_none=False))[1])
    return tuple(host for host in hosts if host.name not in failed), failed


class JobLock:
    """The job's lock on all hosts of a verb. This one is held until the verb ends (a launch: until its commit)."""

    def release_host(self, session: Session) -> None:
        """Called once a host has received everything. Releases its lock, if that is done host by host."""

    def reacquire(self) -> dict[str, TfdeployError]:
        """Acquire the locks that were released early. Return the errors of the hosts where that fails."""
        return {}


class PerHostLock(JobLock):
    """A JobLock that is released host by host, so that no host waits for the slowest one."""

    def __init__(self, fleet: Fleet, hosts: tuple[Host, ...], job: str, operation: str, holder: LockHolder, emit: Emit) -> None:
        self._fleet, self._hosts, self._job = fleet, hosts, job
        self._operation, self._holder, self._emit = operation, holder, emit
        self._released: set[str] = set()

    def release_host(self, session: Session) -> None:
        self._released.add(session.host.name)
        session.fences.pop(self._job, None)
        with contextlib.suppress(TfdeployError):  # the end of the session releases it too
            session.agent().call(UNLOCK, {"job": self._job}, timeout_s=UNLOCK_S)

    def reacquire(self) -> dict[str, TfdeployError]:
        if not self._released:
            return {}
        self.release()  # waiting for one lock while holding another may deadlock
        self._released.clear()
        held, failed = try_lock(self._fleet, self._hosts, self._job, self._operation, self._holder, self._emit)
        self._hosts = held
        return failed

    def release(self) -> None:
        """Release the locks that are still held."""
        release(self._fleet, tuple(host for host in self._hosts if host.name not in self._released), self._job)


@dataclass(frozen=True)
class _LockRequests:
    """Requests for the lock of many hosts. Locks are waited for in the order of host names, so two operators cannot deadlock."""

    fleet: Fleet
    job: str
    operation: str
    holder: LockHolder
    emit: Emit
    soon: tuple[str, ...] = ()

    def acquire_all(self, hosts: tuple[Host, ...], *, all_or_none: bool) -> dict[str, TfdeployError | None]:
        """Takes the first lock, then all others at once. From the first one that is held elsewhere on, takes them one by one.

        `hosts`: sorted by name; `all_or_none`: stop at the first error.
        """
        found = self.fleet.each(hosts[:1], lambda session: self._acquire(session, 0.0))
        if all_or_none and split(found)[1]:
            return found
        found.update(self.fleet.each(hosts[1:], self._request))
        at = next((n for n, host in enumerate(hosts) if _is_locked(found[host.name])), None)
        if at is None:
            return found
        release(self.fleet, hosts[at:], self.job)
        for host in hosts[at:]:
            if not isinstance(found[host.name], TfdeployError) or _is_locked(found[host.name]):
                found.update(self.fleet.each((host,), lambda session: self._acquire(session, LAUNCH_WAIT_S)))
                if all_or_none and isinstance(found[host.name], TfdeployError):
                    return {name: one for name, one in found.items() if name == host.name or not _is_locked(one)}
        return found

    def _request(self, session: Session, wait_s: float = 0.0) -> None:
        args = {"job": self.job, "operation": self.operation, "holder": self.holder, "wait_s": wait_s, "soon": self.soon}
        session.fences[self.job] = session.agent().call(LOCK, args, timeout_s=wait_s + 60.0).fence

    def _acquire(self, session: Session, launch_wait_s: float) -> None:
        """Waits for the lock. A launch waits only `launch_wait_s` for another launch, which may fail to lock another host."""
        host = session.host.name
        try:
            self._request(session, launch_wait_s)
            return
        except AgentError as error:
            if error.code != "locked":
                raise
            found = error.details
        if found.get("operation") == "launch" and self.operation == "launch":
            raise _busy(host, self.job, found)
        note(self.emit, f"waiting for {_holder(found)}", host=host)
        try:
            self._request(session, PATIENCE_S)
        except AgentError as error:
            if error.code != "locked":
                raise
            raise _busy(host, self.job, error.details) from error


def _is_locked(found: TfdeployError | None) -> bool:
    return isinstance(found, AgentError) and found.code == "locked"


def release(fleet: Fleet, hosts: tuple[Host, ...], job: str) -> None:
    """Releases the job's lock in all open sessions. Errors are ignored: the end of a session releases it too."""

    def unlock(session: Session) -> None:
        session.fences.pop(job, None)
        session.agent().call(UNLOCK, {"job": job}, timeout_s=UNLOCK_S)

    fleet.each(fleet.connected(hosts), unlock)


def _busy(host: str, job: str, found: Mapping[str, object]) -> TfdeployError:
    return Refused(
        f"job {job} is locked by {_holder(found)}", where=host, next="wait for it, or `tfdeploy runs` shows what it started"
    )


def _holder(found: Mapping[str, object]) -> str:
    """The lock's holder in words. Any field may be missing or invalid."""
    try:
        since = time.strftime(" since %Y-%m-%d %H:%M:%SZ", time.gmtime(read(found.get("time"), Seconds)))
    except BadShape:
        since = ""
    user, machine, pid, operation = (_safe_word(found.get(key)) for key in ("user", "machine", "pid", "operation"))
    return f"the {operation} of {user}@{machine} (pid {pid}){since}"


def _safe_word(value: object) -> str:
    """Return a name or number from a host's answer; "?" for anything else."""
    return str(value) if isinstance(value, str | int) and _SAFE_WORD.match(str(value)) else "?"
