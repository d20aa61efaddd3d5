"""List the data that comes from a host of the inventory.

The host sends this machine only the listing of the files, and not their contents.
"""

from __future__ import annotations

from contextlib import closing

from tfdeploy.agent import listing
from tfdeploy.errors import AgentError, BadAnswer, Refused, TfdeployError
from tfdeploy.model.answers.files import DATA_LOOK
from tfdeploy.model.inventory import Host
from tfdeploy.transport.protocols import Fleet, Session
from tfdeploy.tree import DataListing
from tfdeploy.tree.datasets import make_data_listing

LISTING_TIMEOUT_S = (
    600.0  # longest silence of the host, in seconds, while it reads the folders and files
)
MOST_BYTES = 256 << 20  # maximum size of a packed listing, in bytes


def list_origin_data(fleet: Fleet, host: Host, path: str) -> DataListing:
    """Return the listing of the data at `path` on the host.

    Raises Refused if the data is missing, unreadable or empty, and any error of the SSH session.
    """
    outcome = fleet.each((host,), lambda session: _list_data_on_host(session, path))[host.name]
    if isinstance(outcome, TfdeployError):
        outcome.where = outcome.where or host.name
        raise outcome
    return outcome


def has_origin_changed(fleet: Fleet, host: Host, data: DataListing) -> bool:
    """Return whether the data on the host has changed since it was listed.

    Data that is missing or unreadable counts as changed. Other errors of the SSH session are
    raised.
    """

    def state_digest(session: Session) -> str | None:
        args = {"path": data.source, "brief": True}
        with closing(
            session.agent().stream(DATA_LOOK, args, silence_s=LISTING_TIMEOUT_S)
        ) as stream:
            for _ in stream:
                break
            return stream.value.stamp if stream.value is not None else None

    outcome = fleet.each((host,), state_digest)[host.name]
    if isinstance(outcome, AgentError) and outcome.code in ("missing", "unreadable"):
        return True
    if isinstance(outcome, TfdeployError):
        raise outcome
    return outcome != data.stamp


def _list_data_on_host(session: Session, path: str) -> DataListing:
    host, packed = session.host.name, bytearray()
    try:
        with closing(
            session.agent().stream(DATA_LOOK, {"path": path}, silence_s=LISTING_TIMEOUT_S)
        ) as stream:
            for _, blob in stream:
                packed += blob
                if len(packed) > MOST_BYTES:
                    raise BadAnswer("the host's listing of the data is too long", where=host)
            looked = stream.value
    except AgentError as error:
        if error.code in ("missing", "unreadable"):
            raise Refused(
                f"data of {host}, {path}: {error.what}",
                where=host,
                next=error.next or "correct `from:` in the job file",
            ) from error
        raise
    try:
        rows = listing.unpack(bytes(packed))
        # Remove setuid bits. Otherwise, a bad host could make programs run as another user on the
        # other hosts.
        rows.drop_special_modes()
    except listing.BadListing as error:
        raise BadAnswer(f"the host's listing cannot be read: {error}", where=host) from error
    if looked is None:
        raise BadAnswer("the host's listing of the data is incomplete", where=host)
    return make_data_listing(path, looked.folder, rows, looked.stamp, host)
