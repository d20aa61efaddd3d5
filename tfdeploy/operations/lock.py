"""Acquire, hold and release the lock of a job on several hosts.

Every operation begins with the lock of the host whose name comes first. So if several launches
begin at the same time, exactly one of them gets all locks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tfdeploy.errors import AgentError, Refused, TfdeployError, has_code
from tfdeploy.model.answers.hosts import LOCK, UNLOCK, LockHolder
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host, Hosts, hosts_except
from tfdeploy.operations.emit import emit_note
from tfdeploy.operations.outcomes import split_outcomes, values_or_error
from tfdeploy.text.typed import InvalidJsonValue, Seconds, convert_untrusted
from tfdeploy.transport.protocols import AgentChannel, Errors, Fleet, Outcomes, Session

# The longest wait, in seconds, for a lock that another operation holds.
PATIENCE_S = 3600.0
# If a launch already has some of its locks, it waits this many seconds for a lock that another
# launch holds.
LAUNCH_WAIT_S = 2.0
UNLOCK_S = 5.0  # timeout, in seconds, of the call that releases a lock
_SAFE_WORD = re.compile(r"[\w.@+-]{1,128}\Z")


class JobLock:
    """A job's lock on hosts, which the caller holds until its operation has ended.

    The methods of this base class do nothing, so no lock is released earlier. In the subclass
    HostLocks, `release_host` releases the lock of a host before the operation has ended.
    """

    def release_host(self, session: Session) -> None:
        """Release the lock of a host that has received everything."""

    def reacquire(self) -> Errors:
        """If locks were released before the end, acquire them again. Return {host: error}."""
        return {}


HELD_TO_THE_END = JobLock()


@dataclass
class HostLocks(JobLock):
    """The job's lock on each of `hosts`, released host by host.

    As soon as the operation has finished on a host, that host is free for other operations. Waiting
    for locks follows the order of host names, so two operators cannot deadlock. `next_verbs` names
    the verbs that are called next, so that the agents can load the modules of these verbs early.
    """

    fleet: Fleet
    hosts: Hosts
    job: str
    operation: str
    holder: LockHolder
    emit: Emit
    next_verbs: tuple[str, ...] = ()
    _released: set[str] = field(default_factory=set)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock on all hosts while the context is open.

        Raises one error for all hosts that cannot be locked. If another operation, such as a sync,
        holds a lock, waits until the lock is released. A launch does not wait for another launch,
        but raises Refused. A host releases the lock when its SSH session ends, so nothing stays
        locked if tfdeploy is killed.
        """
        values_or_error("reaching all hosts", self.start_agents())
        try:
            values_or_error("lock", self.acquire_all(self.hosts, all_or_none=True))
            yield
        finally:
            self.release()

    @contextmanager
    def hold_where_possible(self) -> Iterator[Errors]:
        """Hold the lock on as many hosts as possible while the context is open.

        This is for operations that can succeed on some hosts and fail on others. Yields the errors
        of the hosts that could not be locked. While the context is open, the attribute `hosts`
        contains only the locked hosts.
        """
        try:
            yield self.acquire_where_possible()
        finally:
            self.release()

    def start_agents(self) -> Outcomes[AgentChannel]:
        """Start the agents of all hosts at once, because locks may be requested one by one."""
        return self.fleet.each(self.hosts, lambda session: session.agent())

    def acquire_where_possible(self) -> Errors:
        """Acquire the lock on as many hosts as possible. Return the errors of hosts without a lock.

        Afterwards the attribute `hosts` contains only the locked hosts.
        """
        _, failed = split_outcomes(self.start_agents())
        ready = hosts_except(self.hosts, failed)
        failed.update(split_outcomes(self.acquire_all(ready, all_or_none=False))[1])
        self.hosts = hosts_except(self.hosts, failed)
        return failed

    def acquire_all(self, hosts: Hosts, *, all_or_none: bool) -> dict[str, TfdeployError | None]:
        """Acquire the first lock, then all others at once. Return {host: its error, or None}.

        If another operation holds one of the locks, wait for it. From that host on, in the order of
        host names, locks are acquired one by one. `all_or_none`: stop at the first error.
        """
        hosts = tuple(sorted(hosts, key=lambda host: host.name))
        outcomes = self.fleet.each(hosts[:1], lambda session: self._acquire_on_host(session, 0.0))
        if all_or_none and split_outcomes(outcomes)[1]:
            return outcomes
        outcomes.update(
            self.fleet.each(hosts[1:], lambda session: self._request_lock(session, 0.0))
        )
        first_locked = next(
            (n for n, host in enumerate(hosts) if has_code(outcomes[host.name], "locked")), None
        )
        if first_locked is None:
            return outcomes
        self._release_on(hosts[first_locked:])
        for host in hosts[first_locked:]:
            if outcomes[host.name] is not None and not has_code(outcomes[host.name], "locked"):
                continue
            outcomes.update(
                self.fleet.each(
                    (host,), lambda session: self._acquire_on_host(session, LAUNCH_WAIT_S)
                )
            )
            if all_or_none and outcomes[host.name] is not None:
                return {
                    name: outcome
                    for name, outcome in outcomes.items()
                    if name == host.name or not has_code(outcome, "locked")
                }
        return outcomes

    def release_host(self, session: Session) -> None:
        self._released.add(session.host.name)
        # If this call fails, the end of the session releases the lock.
        with suppress(TfdeployError):
            self._unlock(session)

    def reacquire(self) -> Errors:
        if not self._released:
            return {}
        # Release the other locks first: to hold them while waiting for a lock could deadlock.
        self.release()
        self._released.clear()
        return self.acquire_where_possible()

    def release(self) -> None:
        """Release the locks that are still held."""
        self._release_on(hosts_except(self.hosts, self._released))

    def _release_on(self, hosts: Hosts) -> None:
        """Release the locks on the hosts that are still connected.

        Errors are ignored, because a host releases the lock when its session ends.
        """
        self.fleet.each(self.fleet.connected(hosts), self._unlock)

    def _unlock(self, session: Session) -> None:
        session.fences.pop(self.job, None)
        session.agent().call(UNLOCK, {"job": self.job}, timeout_s=UNLOCK_S)

    def _request_lock(self, session: Session, wait_s: float) -> None:
        """Request the lock from one host.

        If another operation holds the lock, the host waits up to `wait_s` seconds for its release.
        """
        args = {
            "job": self.job,
            "operation": self.operation,
            "holder": self.holder,
            "wait_s": wait_s,
            "soon": self.next_verbs,
        }
        session.fences[self.job] = session.agent().call(LOCK, args, timeout_s=wait_s + 60.0).fence

    def _acquire_on_host(self, session: Session, launch_wait_s: float) -> None:
        """Acquire the lock of one host. Raise Refused if it is not free within PATIENCE_S.

        A launch waits at most `launch_wait_s` for another launch, which may soon fail to lock
        another host and release this lock. There is no wait for a lock that this operation itself
        holds under another host name: two names in the inventory then mean the same machine.
        """
        host = session.host.name
        for wait_s in (launch_wait_s, PATIENCE_S):
            try:
                self._request_lock(session, wait_s)
                return
            except AgentError as error:
                if not has_code(error, "locked"):
                    raise
                if self.holder.items() <= error.details.items():
                    raise Refused(
                        f"{host} and another host of this {self.operation} are one machine",
                        where=host,
                        next="leave out one of the two names: `tfdeploy check` names both",
                    ) from error
                holder = _describe_holder(error.details)
                between_launches = error.details.get("operation") == self.operation == "launch"
                if between_launches or wait_s == PATIENCE_S:
                    raise Refused(
                        f"job {self.job} is locked by {holder}",
                        where=host,
                        next="wait until that operation has ended; see `tfdeploy runs`",
                    ) from error
                emit_note(self.emit, f"waiting for {holder}", host=host)


def refuse_during_launch(fleet: Fleet, host: Host, job: str, holder: LockHolder) -> None:
    """Raise Refused if a launch holds the job's lock on the host. Errors of the host are ignored.

    `stop` calls this: the run of that launch has not started, so there is nothing to stop yet.
    """
    lock = HostLocks(fleet, (host,), job, "stop", holder, lambda event: None)
    outcome = fleet.each((host,), lambda session: lock._request_lock(session, 0.0))[host.name]
    lock.release()
    if isinstance(outcome, AgentError) and outcome.details.get("operation") == "launch":
        raise Refused(
            f"{_describe_holder(outcome.details)} has not yet started its run",
            where=host.name,
            next="press Ctrl-C in the terminal of that launch, or wait until it has started the "
            "run and type the same command again",
        )


def _describe_holder(holder: Mapping[str, object]) -> str:
    """Return a text that describes the holder of a lock.

    The fields of `holder` come from a host, so any of them may be missing or invalid.
    """
    try:
        since = time.strftime(
            " since %Y-%m-%d %H:%M:%SZ", time.gmtime(convert_untrusted(holder.get("time"), Seconds))
        )
    except InvalidJsonValue:
        since = ""
    user, machine, pid, operation = (
        _safe_word(holder.get(key)) for key in ("user", "machine", "pid", "operation")
    )
    return f"the {operation} of {user}@{machine} (pid {pid}){since}"


def _safe_word(value: object) -> str:
    """Return `value` as text if it is a plain name or number, else "?"."""
    return str(value) if isinstance(value, str | int) and _SAFE_WORD.match(str(value)) else "?"
