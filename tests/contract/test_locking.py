"""Test the lock of a job on many hosts when several operators lock different sets of hosts.

No operator waits forever, and an operator who does not get the lock is told who has it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from support.waiting import wait_for
from tfdeploy.agent.listing import Listing
from tfdeploy.errors import AgentError, HostUnreachable, Refused, TfdeployError
from tfdeploy.model.answers.failures import quote_host_text
from tfdeploy.model.answers.files import DATA_LACK
from tfdeploy.model.answers.hosts import LOCK, UNLOCK
from tfdeploy.model.answers.runs import RUN_ABORT
from tfdeploy.operations.lock import HostLocks
from tfdeploy.transport.fleet import SshFleet

ALL = ("n1", "n2", "n3")
LISTING = Listing().pack()  # of an empty data set
ANNA, BERT = (
    {"user": name, "machine": f"{name}s-laptop", "pid": 7, "time": 1795250000.0}
    for name in ("anna", "bert")
)


@pytest.fixture
def fleets(ssh_hosts: Any) -> Iterator[Any]:
    hosts = {name: ssh_hosts.host(name).host for name in ALL}
    opened = [SshFleet(), SshFleet(), SshFleet()]
    yield hosts, *opened
    for fleet in opened:
        fleet.close()


def ask(
    fleet: SshFleet, host: Any, verb: str, holder: dict[str, Any] = BERT, wait_s: float = 0.0
) -> bool:
    args = {"job": "job", "operation": verb, "holder": holder, "wait_s": wait_s}
    try:
        fleet.session(host).agent().call(LOCK, args, timeout_s=60)
    except AgentError as error:
        assert error.code == "locked"
        return False
    return True


class Taking(threading.Thread):
    """A thread that locks the job on all hosts and holds the locks until `let_go` is set."""

    def __init__(self, fleet: SshFleet, hosts: dict[str, Any], operation: str) -> None:
        super().__init__(daemon=True)
        self.fleet, self.hosts, self.operation = fleet, tuple(reversed(hosts.values())), operation
        self.held, self.let_go = threading.Event(), threading.Event()
        self.said: list[str] = []
        self.error: TfdeployError | None = None
        self.start()

    def run(self) -> None:
        def emit(event: Any) -> None:
            self.said.append(event.data.get("text", ""))

        try:
            with HostLocks(
                fleet=self.fleet,
                hosts=self.hosts,
                job="job",
                operation=self.operation,
                holder=ANNA,
                emit=emit,
            ).hold():
                self.held.set()
                self.let_go.wait(120)
        except TfdeployError as error:
            self.error = error


def test_operators_of_different_hosts_do_not_wait_for_each_other(fleets: Any) -> None:
    hosts, anna, bert, looker = fleets
    assert ask(bert, hosts["n2"], "sync")
    taking = Taking(anna, hosts, "sync")
    wait_for(lambda: taking.said, 20, "anna waits")
    # anna waits for the lock on n2, and already holds the lock on n1.
    assert not ask(looker, hosts["n1"], "sync")
    # Hosts are locked in order. anna still waits for n2, so she does not hold the lock on n3, which
    # comes after n2.
    assert ask(bert, hosts["n3"], "sync", wait_s=20)
    assert taking.said == [
        "waiting for the sync of bert@berts-laptop (pid 7) since 2026-11-21 08:33:20Z"
    ]
    for name in ("n2", "n3"):
        bert.session(hosts[name]).agent().call(UNLOCK, {"job": "job"})
    assert taking.held.wait(120)
    assert not ask(looker, hosts["n3"], "sync")
    taking.let_go.set()
    taking.join(120)
    assert ask(looker, hosts["n3"], "sync", wait_s=5)


@pytest.mark.parametrize("operation", ["launch", "sync"])
def test_two_names_of_one_machine_are_named_and_not_waited_for(fleets: Any, operation: str) -> None:
    hosts, anna, _, _ = fleets
    taking = Taking(anna, {"n1": hosts["n1"], "n4": replace(hosts["n1"], name="n4")}, operation)
    taking.join(60)
    assert isinstance(taking.error, Refused) and taking.said == []
    assert taking.error.what == f"n4 and another host of this {operation} are one machine"


def test_first_of_two_launches_gets_lock(fleets: Any) -> None:
    hosts, anna, bert, _ = fleets
    assert ask(bert, hosts["n2"], "launch")
    taking = Taking(anna, hosts, "launch")
    assert ask(bert, hosts["n3"], "launch", wait_s=20)
    taking.join(120)
    assert isinstance(taking.error, Refused) and taking.error.where == "n2"
    assert (
        taking.error.what
        == "job job is locked by the launch of bert@berts-laptop (pid 7) since 2026-11-21 08:33:20Z"
    )
    # The launch that failed has released all its locks.
    assert ask(bert, hosts["n1"], "launch", wait_s=20)


def test_error_names_all_unreachable_hosts(fleets: Any) -> None:
    hosts, anna, *_ = fleets
    away = tuple(replace(host, port=9) for host in hosts.values())
    with (
        pytest.raises(HostUnreachable) as caught,
        HostLocks(
            fleet=anna,
            hosts=away,
            job="digits",
            operation="launch",
            holder=ANNA,
            emit=lambda event: None,
        ).hold(),
    ):
        pass
    assert caught.value.where == "n[1-3]"
    assert [line.split(":")[0].strip() for line in caught.value.what.splitlines()[1:]] == ["n[1-3]"]


@pytest.mark.fault("28 an operator whose lock another has taken since")
def test_operator_who_lost_lock_changes_nothing(fleets: Any) -> None:
    """Test a lock that is lost and taken by another operator: Anna's agent is killed, Bert syncs,
    and Anna goes on in her old session.
    """
    hosts, anna, bert, _ = fleets
    host, where = hosts["n1"], {"job": "job", "name": "d"}
    with HostLocks(
        fleet=anna, hosts=(host,), job="job", operation="sync", holder=ANNA, emit=lambda event: None
    ).hold():
        agent = anna.session(host).agent()
        agent.call(DATA_LACK, where, blob=LISTING)
        os.kill(agent.hello.pid, signal.SIGKILL)
        with HostLocks(
            fleet=bert,
            hosts=(host,),
            job="job",
            operation="sync",
            holder=BERT,
            emit=lambda event: None,
        ).hold():
            new_agent = lost_for(anna, host, agent)
            error = refused(new_agent, where)
            bert.session(host).agent().call(DATA_LACK, where, blob=LISTING)
        assert refused(new_agent, where).details == error.details
        assert (error.code, error.exit_code) == ("lock_lost", 3) and error.where == "n1"
        assert error.what == quote_host_text(
            "n1",
            "the lock of job job was lost on this host: the lock has since been taken for the "
            "sync of bert@berts-laptop (pid 7)",
        )
        # A call that ends a run needs no lock.
        assert new_agent.call(RUN_ABORT, {"job": "job", "run": "r1"}) is not None
    with HostLocks(
        fleet=anna, hosts=(host,), job="job", operation="sync", holder=ANNA, emit=lambda event: None
    ).hold():
        anna.session(host).agent().call(DATA_LACK, where, blob=LISTING)


def test_operator_who_lost_only_session_keeps_lock(fleets: Any) -> None:
    hosts, anna, bert, _ = fleets
    host, where = hosts["n1"], {"job": "job", "name": "d"}
    with HostLocks(
        fleet=anna, hosts=(host,), job="job", operation="sync", holder=ANNA, emit=lambda event: None
    ).hold():
        anna.session(host).close()
        anna.session(host).agent().call(DATA_LACK, where, blob=LISTING)
        assert not ask(bert, host, "sync")
    assert ask(bert, host, "sync", wait_s=20)


def lost_for(fleet: SshFleet, host: Any, before: Any) -> Any:
    """Wait until the session has a new channel in place of `before`, which is lost. Return the new
    channel.
    """
    return wait_for(
        lambda: (session := fleet.session(host).agent()) is not before and session,
        20,
        "a new agent",
    )


def refused(agent: Any, where: dict[str, Any]) -> AgentError:
    with pytest.raises(AgentError) as caught:
        agent.call(DATA_LACK, where, blob=LISTING)
    return caught.value
