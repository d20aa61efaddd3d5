"""Send code and data sets to all hosts at once (`tfdeploy sync`).

On each host, the code is stored as a release: a folder whose name is a digest of its content. The
digests of code and data are compared first, so a host that already has everything receives nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from pathlib import Path

from tfdeploy.errors import Refused
from tfdeploy.model.answers.files import BROADCAST_JOIN, DATA_LACK
from tfdeploy.model.answers.hosts import LockHolder
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Hosts, Inventory, hosts_except, hosts_named
from tfdeploy.model.job import Job
from tfdeploy.operations.connecting import Connecting
from tfdeploy.operations.copy.code_files import CodeChanged
from tfdeploy.operations.emit import emit_transfer, emit_warning
from tfdeploy.operations.lock import HELD_TO_THE_END, HostLocks, JobLock
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.sending.deletions import Confirm
from tfdeploy.operations.sending.send_code import SyncResult, has_release, send_code
from tfdeploy.operations.sending.shipment import Shipment
from tfdeploy.operations.sending.whole_shipment import read_whole_shipment
from tfdeploy.transport.protocols import Fleet, Outcomes, Session

TRIES = 3  # if the code changes while it is sent, it is sent at most this many times


def sync(
    fleet: Fleet,
    hosts: Hosts,
    shipment: Shipment,
    emit: Emit,
    lock: JobLock = HELD_TO_THE_END,
) -> Outcomes[SyncResult]:
    """Send the shipment to all hosts, and return every host's outcome.

    If a host fails, the others still receive everything. As soon as a host has received everything,
    its `lock` is released.
    """
    results = send_code(fleet, hosts, shipment, emit, HELD_TO_THE_END if shipment.data else lock)
    if shipment.data:
        # Imported only here, because many jobs have no data sets and the import takes 50 ms.
        from tfdeploy.operations.sending.send_data import send_data

        send_data(fleet, hosts, shipment, results, emit, lock)
    for name, result in split_outcomes(results)[0].items():
        emit_transfer(emit, name, "all", "done", result.bytes_sent, result.bytes_sent)
    return results


def sync_job(
    fleet: Fleet,
    hosts: Hosts,
    job: Job,
    holder: LockHolder,
    cache: Path | None,
    emit: Emit,
    confirm: Confirm,
    inventory: Inventory,
    connecting: Connecting,
    *,
    allow_secrets: bool = False,
) -> Outcomes[SyncResult]:
    """Lock the hosts, read the code and data, and send them. Return every host's outcome.

    If the code changes while it is sent, it is read again, and sent again to the hosts on which
    sending failed for this reason. `inventory`: the whole inventory, needed for data sets that are
    read from a host or split among workers. `connecting`: the start of the agents of `hosts`.
    `allow_secrets`: accept private keys in the code.
    """
    read = partial(read_whole_shipment, fleet, job, cache, inventory, allow_secrets=allow_secrets)
    shipment = read()
    for warning in shipment.warnings:
        emit_warning(emit, warning)
    if connecting.is_agent_missing():
        shipment.code.pack_ahead()
    results: Outcomes[SyncResult] = {**connecting.wait_for_failed()}
    before = Counter[str]()
    wanted = hosts_except(hosts, results)
    for _ in range(TRIES):
        settled = _outcomes_of_complete_hosts(fleet, wanted, shipment, emit)
        results.update(settled)
        wanted = hosts_except(wanted, settled)
        next_verbs = (DATA_LACK.name, BROADCAST_JOIN.name) if shipment.data else ()
        lock = HostLocks(fleet, wanted, job.name, "sync", holder, emit, next_verbs)
        with lock.hold_where_possible() as failed:
            refused = _unconfirmed_deletions(fleet, lock.hosts, shipment, confirm, emit)
            results.update({**failed, **(refused or sync(fleet, lock.hosts, shipment, emit, lock))})
        changed = {
            name: result.bytes_sent
            for name, result in results.items()
            if isinstance(result, CodeChanged)
        }
        before.update(changed)
        wanted = hosts_named(hosts, changed)
        if not wanted:
            break
        shipment = read()
    for name, result in split_outcomes(results)[0].items():
        result.bytes_sent += before[name]
    return {host.name: results[host.name] for host in hosts}


def _outcomes_of_complete_hosts(
    fleet: Fleet, hosts: Hosts, shipment: Shipment, emit: Emit
) -> Outcomes[SyncResult]:
    """Return the outcomes of the hosts on which there is nothing to do, so that they need no lock.

    These are the hosts that already have all code, and the hosts that failed. If the shipment has
    data sets, no host is asked, and the result is {}.
    """
    if shipment.data:
        return {}

    def ask(session: Session) -> SyncResult | None:
        began = time.monotonic()
        if not has_release(session, shipment):
            return None
        emit_transfer(emit, session.host.name, "all", "done", 0, 0)
        return SyncResult(shipment.manifest.release, seconds=time.monotonic() - began)

    outcomes = fleet.each(hosts, ask)
    return {name: each for name, each in outcomes.items() if each is not None}


def _unconfirmed_deletions(
    fleet: Fleet, hosts: Hosts, shipment: Shipment, confirm: Confirm, emit: Emit
) -> Outcomes[SyncResult]:
    """Ask the operator before most files of a data set are deleted.

    Returns {} if the data sets may be sent, otherwise the same error for every host.
    """
    if not shipment.data:
        return {}
    from tfdeploy.operations.sending.send_data import note_and_confirm_deletions

    try:
        note_and_confirm_deletions(fleet, hosts, shipment, confirm, emit)
    except Refused as error:
        return {host.name: error for host in hosts}
    return {}
