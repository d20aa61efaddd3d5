"""Send data to one host from this machine by rsync, for `via: rsync`.

The host names a folder, rsync fills it, and the host compares the result with the digest.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tfdeploy.errors import AgentError, Refused
from tfdeploy.model.answers.files import DATA_BEGIN, DATA_COMMIT, DATA_STATE, DataUploadFolder
from tfdeploy.model.events import Emit
from tfdeploy.operations.confine import check_below_workdir
from tfdeploy.operations.copy.rsync_notes import warn_of_rsync_flaws
from tfdeploy.operations.emit import emit_transfer, emit_warning, transfer_events
from tfdeploy.transport.protocols import AgentChannel, Session
from tfdeploy.transport.rsync.transfer import push
from tfdeploy.tree import DataListing
from tfdeploy.tree.datasets import has_changed, list_again

TRIES = 3  # data that changes while it is sent is sent at most this many times
LOOK_S = 600.0


class DataInUse(Refused):
    """Sending the data would change files that a live run of the job reads."""


def push_data(
    session: Session, job: str, name: str, listing: DataListing, emit: Emit
) -> int | None:
    """Send the data set to one host. The caller holds the job's lock.

    Returns the bytes sent, or None if the host had the data set already.
    """
    agent, data_args, sent = session.agent(), {"job": job, "name": name}, None
    for attempt in range(TRIES):
        state = agent.call(DATA_STATE, data_args, timeout_s=LOOK_S)
        if state is not None and state.digest == listing.digest:
            return sent
        folder = check_below_workdir(
            session, request_data_folder(agent, job, name, listing, session.host.name).folder
        )
        names = None if listing.is_folder else [os.fsencode(Path(listing.source).name)]
        rsync_options = {"delete": listing.is_folder, "compare_content": attempt > 0}
        sent = (sent or 0) + push_with_progress(
            session,
            listing.root,
            names,
            folder,
            listing.total_bytes,
            f"data {name}",
            emit,
            **rsync_options,
        )
        if (
            not has_changed(listing)
            and agent.call(
                DATA_COMMIT, {**data_args, "digest": listing.digest}, timeout_s=LOOK_S
            ).ok
        ):
            return sent
        emit_warning(
            emit,
            f"data {name} changed while it was sent: sending it again",
            host=session.host.name,
        )
        listing = list_again(listing)
    raise Refused(
        f"data set {name} keeps changing while it is sent",
        where=session.host.name,
        next=f"stop what writes to {listing.source}",
    )


def request_data_folder(
    agent: AgentChannel,
    job: str,
    name: str,
    listing: DataListing,
    host: str,
    blob: bytes = b"",
    **more: Any,
) -> DataUploadFolder:
    """Ask the host for the folder to fill. Raise DataInUse if a live run reads the data."""
    args = {"job": job, "name": name, "bytes": listing.total_bytes, **more}
    try:
        return agent.call(DATA_BEGIN, args, blob=blob, timeout_s=LOOK_S)
    except AgentError as error:
        if error.code != "live_run":
            raise
        raise DataInUse(error.what, where=host, next=error.next) from error


def push_with_progress(
    session: Session,
    root: str,
    names: list[bytes] | None,
    folder: str,
    total: int,
    subject: str,
    emit: Emit,
    *,
    delete: bool,
    compare_content: bool = False,
) -> int:
    """Send files by rsync, with progress events. Return the bytes sent."""
    host = session.host.name

    def report_progress(sent: int, _total: int | None = None) -> None:
        emit_transfer(emit, host, subject, "moving", sent, total)

    warn_of_rsync_flaws(emit)
    with transfer_events(emit, host, subject, total):
        return push(
            session.target,
            root,
            names,
            folder,
            delete=delete,
            compare_content=compare_content,
            on_progress=report_progress,
            session=session,
            total_bytes=total,
        )
