"""Send data sets to hosts, by broadcast or by rsync. Refuse to change data that a live run uses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tfdeploy.errors import Refused, TfdeployError
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Hosts, hosts_named
from tfdeploy.operations.broadcast.data_set import DataSet
from tfdeploy.operations.broadcast.data_sets import send_data_sets
from tfdeploy.operations.copy.push_data import DataInUse, push_data, request_data_folder
from tfdeploy.operations.emit import emit_note
from tfdeploy.operations.lock import HELD_TO_THE_END, JobLock
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.sending.deletions import (
    MOST_NAMES_BYTES,
    Confirm,
    Deletions,
    deletion_notes,
    refuse_unconfirmed_deletions,
)
from tfdeploy.operations.sending.send_code import SyncResult
from tfdeploy.operations.sending.shipment import Shipment
from tfdeploy.transport.protocols import Fleet, Outcomes, Session


def data_sets_to_broadcast(shipment: Shipment) -> dict[str, DataSet]:
    """Return the data sets that are sent by broadcast, by name."""
    return {
        name: DataSet(listing, shipment.origins.get(name), shipment.splits.get(name))
        for name, listing in shipment.data.items()
        if name not in shipment.by_rsync
    }


def send_data(
    fleet: Fleet,
    hosts: Hosts,
    shipment: Shipment,
    results: Outcomes[SyncResult],
    emit: Emit,
    lock: JobLock,
) -> None:
    """Send the data sets to all hosts that have the code, and add the outcomes to `results`.

    On each host, `lock` is released once the host has received everything.
    """
    data = data_sets_to_broadcast(shipment)
    if shipment.by_rsync:
        done, _ = split_outcomes(results)
        results.update(
            _send_by_rsync(fleet, hosts, shipment, done, emit, HELD_TO_THE_END if data else lock)
        )
    if not data:
        return
    done, _ = split_outcomes(results)
    began, live = time.monotonic(), hosts_named(hosts, done)
    for name, outcome in send_data_sets(fleet, live, shipment.job, data, emit, lock).items():
        if isinstance(outcome, TfdeployError):
            results[name] = outcome
        else:
            done[name].bytes_sent += outcome.received_bytes
            done[name].sent += outcome.sent_names
            done[name].source = outcome.source
            done[name].seconds += time.monotonic() - began


def _send_by_rsync(
    fleet: Fleet,
    hosts: Hosts,
    shipment: Shipment,
    results_by_host: Mapping[str, SyncResult],
    emit: Emit,
    lock: JobLock,
) -> Outcomes[SyncResult]:
    """Send the data sets with `via: rsync` from this machine to each host."""

    def send_to_host(session: Session) -> SyncResult:
        began, done = time.monotonic(), results_by_host[session.host.name]
        for name in sorted(shipment.by_rsync):
            sent = push_data(session, shipment.job, name, shipment.data[name], emit)
            if sent is not None:
                done.sent.append(f"data {name}")
                done.bytes_sent += sent
        done.seconds += time.monotonic() - began
        lock.release_host(session)
        return done

    return fleet.each(hosts_named(hosts, results_by_host), send_to_host)


def find_data_refusals(
    fleet: Fleet, hosts: Hosts, shipment: Shipment, confirm: Confirm, emit: Emit
) -> Outcomes[SyncResult]:
    """Return an error for every host if data would change that a live run uses, otherwise {}.

    Sends nothing. Emits a note for each data set that would lose files. Raises Refused if most of a
    data set would be deleted and the operator does not confirm that.
    """

    deletions: Deletions = {}

    def ask(session: Session) -> None:
        for name, listing in shipment.data.items():
            about = (session.agent(), shipment.job, name, listing, session.host.name)
            question: dict[str, Any] = {
                "digest": listing.digest,
                "ask": True,
                "staged": name not in shipment.by_rsync,
            }
            folder = request_data_folder(*about, **question)
            if (
                listing.is_folder
                and folder.files
                and listing.path_hashes_max_bytes < MOST_NAMES_BYTES
            ):
                folder = request_data_folder(*about, blob=listing.path_hashes, **question)
            if folder.losing:
                deletions.setdefault(name, {})[session.host.name] = (folder.losing, folder.files)

    outcomes = fleet.each(hosts, ask) if shipment.data else {}
    live = [name for name, error in outcomes.items() if isinstance(error, DataInUse)]
    if live:
        other = Refused(
            f"nothing was sent: data would change under a live run on {', '.join(live)}"
        )
        return {
            name: error if isinstance(error, TfdeployError) else other
            for name, error in outcomes.items()
        }
    refuse_unconfirmed_deletions(deletions, confirm)
    for text in deletion_notes(deletions):
        emit_note(emit, text)
    return {}
