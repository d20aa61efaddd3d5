"""Send data sets to hosts. Before that, count the files that the hosts would delete."""

from __future__ import annotations

import time

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.files import DATA_LOSING
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Hosts, hosts_named
from tfdeploy.operations.broadcast.data_set import LISTING_TIMEOUT_S, DataSet
from tfdeploy.operations.broadcast.data_sets import send_data_sets
from tfdeploy.operations.emit import emit_note
from tfdeploy.operations.lock import JobLock
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


def data_sets_to_send(shipment: Shipment) -> dict[str, DataSet]:
    """Return the data sets of the shipment by name."""
    return {
        name: DataSet(
            listing,
            shipment.origins.get(name),
            shipment.splits.get(name),
            by_rsync=name in shipment.by_rsync,
        )
        for name, listing in shipment.data.items()
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

    As soon as a host has received everything, its `lock` is released.
    """
    done, _ = split_outcomes(results)
    began, live = time.monotonic(), hosts_named(hosts, done)
    data = data_sets_to_send(shipment)
    for name, outcome in send_data_sets(fleet, live, shipment.job, data, emit, lock).items():
        if isinstance(outcome, TfdeployError):
            results[name] = outcome
        else:
            done[name].bytes_sent += outcome.received_bytes
            done[name].sent += outcome.sent_names
            done[name].source = outcome.source
            done[name].seconds += time.monotonic() - began


def note_and_confirm_deletions(
    fleet: Fleet, hosts: Hosts, shipment: Shipment, confirm: Confirm, emit: Emit
) -> None:
    """Emit a note for each data set of which hosts would delete files. Sends nothing.

    If most files of a data set would be deleted, asks the operator. Raises Refused unless he
    confirms the deletion.
    """

    deletions: Deletions = {}

    def ask(session: Session) -> None:
        for name, listing in shipment.data.items():
            args = {"job": shipment.job, "name": name, "digest": listing.digest}
            agent = session.agent()
            present = agent.call(DATA_LOSING, args, timeout_s=LISTING_TIMEOUT_S)
            if (
                listing.is_folder
                and present.files
                and listing.path_hashes_max_bytes < MOST_NAMES_BYTES
            ):
                present = agent.call(
                    DATA_LOSING, args, blob=listing.path_hashes, timeout_s=LISTING_TIMEOUT_S
                )
            if present.losing:
                deletions.setdefault(name, {})[session.host.name] = (present.losing, present.files)

    if shipment.data:
        fleet.each(hosts, ask)
    refuse_unconfirmed_deletions(deletions, confirm)
    for text in deletion_notes(deletions):
        emit_note(emit, text)
