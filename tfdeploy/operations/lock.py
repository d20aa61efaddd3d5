"""Lock a job on every host.

Hosts are locked in the order of their names, so that exactly one of many launches gets all locks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tfdeploy.errors import AgentError, Refused, TfdeployError, has_code
from tfdeploy.model.answers.bounds import Seconds
from tfdeploy.model.answers.hosts import LOCK, UNLOCK, LockHolder
from tfdeploy.model.answers.reading import BadShape, read
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host
from tfdeploy.operations.emit import emit_note
from tfdeploy.operations.outcomes import split_outcomes, values_or_error
from tfdeploy.transport.protocols import AgentChannel, Fleet, Session

PATIENCE_S = 3600.0
LAUNCH_WAIT_S = 2.0
UNLOCK_S = 5.0
_SAFE_WORD = re.compile(r"[\w.@+-]{1,128}\Z")


@contextmanager
def locked(
    fleet: Fleet, hosts: tuple[Host, ...], job: str, operation: str, holder: LockHolder, emit: Emit
) -> Iterator[None]:
    """Hold the job's lock on all hosts, or raise one error for all hosts that cannot be locked.

    Waits for a sync. If another launch holds the lock, a launch raises Refused. A lock ends with
    its session, so nothing stays locked when tfdeploy is killed.
    """
    lock = HostLocks(fleet, hosts, job, operation, holder, emit)
    values_or_error("reaching all hosts", lock.connect())
    try:
        values_or_error("lock", lock.acquire_all(hosts, all_or_none=True))
        yield
    finally:
        lock.release()


@contextmanager
def locked_where_possible(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    job: str,
    operation: str,
    holder: LockHolder,
    emit: Emit,
    soon: tuple[str, ...] = (),
) -> Iterator[tuple[HostLocks, dict[str, TfdeployError]]]:
    """Hold the job's lock on some hosts, for a verb that may succeed on these only.

    Yields the lock and the errors of hosts that are not locked; `hosts` of the lock are the locked
    ones. `soon` names verbs that the agent will be asked next, so that it can prepare for them.
    """
    lock = HostLocks(fleet, hosts, job, operation, holder, emit, soon)
    try:
        yield lock, lock.acquire()
    finally:
        lock.release()


class JobLock:
    """The job's lock on all hosts of a verb, held until the verb ends (in a launch, until
    commit)."""

    def release_host(self, session: Session) -> None:
        """Release the host's lock once it has received everything, if locks are released host by
        host."""

    def reacquire(self) -> dict[str, TfdeployError]:
        """Acquire again the locks that were released early. Return the errors of hosts where that
        fails."""
        return {}


@dataclass
class HostLocks(JobLock):
    """The lock on each of `hosts`, released host by host, so that no host waits for the slowest
    one.

    Locks are acquired in the order of host names, so two operators cannot deadlock.
    """

    fleet: Fleet
    hosts: tuple[Host, ...]
    job: str
    operation: str
    holder: LockHolder
    emit: Emit
    soon: tuple[str, ...] = ()
    _released: set[str] = field(default_factory=set)

    def connect(self) -> dict[str, AgentChannel | TfdeployError]:
        """Start the agents of all hosts, before waiting for the first lock."""
        return self.fleet.each(self.hosts, lambda session: session.agent())

    def acquire(self) -> dict[str, TfdeployError]:
        """Acquire as many locks as possible. Keep their hosts, and return the errors of the others."""
        _, failed = split_outcomes(self.connect())
        ready = tuple(host for host in self.hosts if host.name not in failed)
        failed.update(split_outcomes(self.acquire_all(ready, all_or_none=False))[1])
        self.hosts = tuple(host for host in self.hosts if host.name not in failed)
        return failed

    def acquire_all(
        self, hosts: tuple[Host, ...], *, all_or_none: bool
    ) -> dict[str, TfdeployError | None]:
        """Acquire the first lock, then all others at once. Return each host's error, or None.

        As soon as somebody else holds a lock, the remaining locks are acquired one by one.
        `all_or_none`: stop at the first error.
        """
        hosts = tuple(sorted(hosts, key=lambda host: host.name))
        outcomes = self.fleet.each(hosts[:1], lambda session: self._acquire(session, 0.0))
        if all_or_none and split_outcomes(outcomes)[1]:
            return outcomes
        outcomes.update(self.fleet.each(hosts[1:], self._request))
        at = next(
            (n for n, host in enumerate(hosts) if has_code(outcomes[host.name], "locked")), None
        )
        if at is None:
            return outcomes
        self._release(hosts[at:])
        for host in hosts[at:]:
            if outcomes[host.name] is not None and not has_code(outcomes[host.name], "locked"):
                continue
            outcomes.update(
                self.fleet.each((host,), lambda session: self._acquire(session, LAUNCH_WAIT_S))
            )
            if all_or_none and outcomes[host.name] is not None:
                return {
                    name: one
                    for name, one in outcomes.items()
                    if name == host.name or not has_code(one, "locked")
                }
        return outcomes

    def release_host(self, session: Session) -> None:
        self._released.add(session.host.name)
        with suppress(TfdeployError):  # the end of the session releases it too
            self._unlock(session)

    def reacquire(self) -> dict[str, TfdeployError]:
        if not self._released:
            return {}
        self.release()  # waiting for one lock while holding another may deadlock
        self._released.clear()
        return self.acquire()

    def release(self) -> None:
        """Release the locks that are still held."""
        self._release(tuple(host for host in self.hosts if host.name not in self._released))

    def _release(self, hosts: tuple[Host, ...]) -> None:
        """Release locks in open sessions. Errors are ignored, because a lock ends with its session."""
        self.fleet.each(self.fleet.connected(hosts), self._unlock)

    def _unlock(self, session: Session) -> None:
        session.fences.pop(self.job, None)
        session.agent().call(UNLOCK, {"job": self.job}, timeout_s=UNLOCK_S)

    def _request(self, session: Session, wait_s: float = 0.0) -> None:
        """Ask the host for the lock, and wait for at most `wait_s`."""
        args = {
            "job": self.job,
            "operation": self.operation,
            "holder": self.holder,
            "wait_s": wait_s,
            "soon": self.soon,
        }
        session.fences[self.job] = session.agent().call(LOCK, args, timeout_s=wait_s + 60.0).fence

    def _acquire(self, session: Session, launch_wait_s: float) -> None:
        """Wait for the lock. Raise Refused if somebody holds it for too long.

        A launch waits only `launch_wait_s` for another launch, which may still fail to lock another
        host.
        """
        host = session.host.name
        for wait_s in (launch_wait_s, PATIENCE_S):
            try:
                self._request(session, wait_s)
                return
            except AgentError as error:
                if not has_code(error, "locked"):
                    raise
                holder = _describe_holder(error.details)
                between_launches = error.details.get("operation") == self.operation == "launch"
                if between_launches or wait_s == PATIENCE_S:
                    raise Refused(
                        f"job {self.job} is locked by {holder}",
                        where=host,
                        next="wait for it, or `tfdeploy runs` shows what it started",
                    ) from error
                emit_note(self.emit, f"waiting for {holder}", host=host)


def _describe_holder(holder: Mapping[str, object]) -> str:
    """Describe the lock's holder. Any field may be missing or invalid."""
    try:
        since = time.strftime(
            " since %Y-%m-%d %H:%M:%SZ", time.gmtime(read(holder.get("time"), Seconds))
        )
    except BadShape:
        since = ""
    user, machine, pid, operation = (
        _safe_word(holder.get(key)) for key in ("user", "machine", "pid", "operation")
    )
    return f"the {operation} of {user}@{machine} (pid {pid}){since}"


def _safe_word(value: object) -> str:
    """Return a name or number from a host's answer; "?" for any other value."""
    return str(value) if isinstance(value, str | int) and _SAFE_WORD.match(str(value)) else "?"
