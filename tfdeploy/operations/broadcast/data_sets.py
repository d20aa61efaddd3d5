"""Send data sets to hosts, and send a data set again if its source changes while it is sent.

The caller holds the job's lock on every host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tfdeploy.errors import Refused
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host, hosts_except
from tfdeploy.operations.broadcast.data_set import DataSet
from tfdeploy.operations.broadcast.data_set_sending import DataSetSending
from tfdeploy.operations.broadcast.delivery import (
    Outcome,
    ReceivedFiles,
    merge_outcomes,
)
from tfdeploy.operations.broadcast.source import SourceChanged
from tfdeploy.operations.emit import emit_warning
from tfdeploy.operations.lock import HELD_TO_THE_END, JobLock
from tfdeploy.transport.protocols import Fleet, Session

MAX_SENDS = 3  # a data set whose source keeps changing is sent at most this many times


def send_data_sets(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    job: str,
    data: Mapping[str, DataSet],
    emit: Emit,
    lock: JobLock = HELD_TO_THE_END,
) -> dict[str, Outcome]:
    """Send the data sets to all hosts, and return every host's outcome.

    A host that fails does not stop the others. The job's lock (`lock`) is released on a host as
    soon as the host has all of its data sets.
    """
    outcomes: dict[str, Outcome] = {host.name: ReceivedFiles() for host in hosts}
    last = {
        host.name: name
        for name, each in data.items()
        for host in hosts
        if each.expected_on(host.name) is not None
    }
    for name, each in data.items():
        live = tuple(
            host
            for host in hosts
            if isinstance(outcomes[host.name], ReceivedFiles)
            and each.expected_on(host.name) is not None
        )
        if live:
            finishing_hosts = frozenset(host for host in last if last[host] == name)
            merge_outcomes(
                outcomes,
                _send_again_if_source_changes(
                    fleet, live, job, name, each, emit, lock, finishing_hosts
                ),
            )
    return outcomes


def _send_again_if_source_changes(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    job: str,
    name: str,
    data: DataSet,
    emit: Emit,
    lock: JobLock,
    finishing_hosts: frozenset[str],
) -> dict[str, Outcome]:
    """Send one data set, and send it again if its source changed while it was sent.

    A split data set is sent only once, because its files are already divided among the hosts.
    `finishing_hosts`: the hosts that get no further data set. Their locks are released as soon as
    they have this one.
    """
    lost: dict[str, Outcome] = {}

    def unlock_if_finishing(session: Session) -> None:
        if session.host.name in finishing_hosts:
            lock.release_host(session)

    for number in range(1 if data.split else MAX_SENDS):
        attempt = DataSetSending(
            fleet, job, name, data, emit, unlock_if_finishing, trusts_staged=not number
        )
        try:
            return {**attempt.send_to(hosts), **lost}
        except SourceChanged as error:
            changed = error
        lost.update(lock.reacquire())
        hosts = hosts_except(hosts, lost)
        if data.split is None:
            emit_warning(emit, f"data {name}: {changed.what}: sending it again")
            data = replace(data, listing=data.list_again(fleet))
    host = f"{data.origin.name}:" if data.origin else ""
    changing = Refused(
        f"data set {name} changed while it was sent",
        next=f"stop what writes to {host}{data.listing.source}, then run the same command again",
    )
    return {**{host.name: changing for host in hosts}, **lost}
