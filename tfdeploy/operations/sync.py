"""`tfdeploy sync`: code becomes a release on every host, data sets are made complete; all hosts at once.

Digests are compared first: nothing is sent to a host that has the release and the data.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfdeploy.errors import AgentError, Refused, TfdeployError
from tfdeploy.model.answers.files import (
    DATA_BEGIN,
    DATA_COMMIT,
    DATA_STATE,
    RELEASE_BEGIN,
    RELEASE_COMMIT,
    RELEASE_PUT,
    RELEASE_STATE,
    DataPlace,
)
from tfdeploy.model.answers.hosts import LockHolder
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job
from tfdeploy.model.manifest import Manifest
from tfdeploy.operations.broadcast.data_sets import send_data_sets
from tfdeploy.operations.confine import below_workdir, only_of
from tfdeploy.operations.copy.pack import Packer
from tfdeploy.operations.copy.send_change import Changes, send_change
from tfdeploy.operations.deletions import A_FEW, MOST_NAMES_BYTES, Confirm, Losses, is_most, never_confirm, refuse_losses
from tfdeploy.operations.emit import emit_transfer, note
from tfdeploy.operations.lock import release, try_lock
from tfdeploy.operations.outcomes import split
from tfdeploy.transport.protocols import AgentChannel, Fleet, Session
from tfdeploy.transport.rsync.messages import rsync_missing
from tfdeploy.transport.rsync.transfer import push
from tfdeploy.tree import DataListing, read_data, read_tree
from tfdeploy.tree.earlier import Earlier

KEEP_RELEASES = 5
TRIES = 3  # a file that changes while it is sent is sent again this often


class TreeChanged(Refused):
    """The code folder no longer matches its manifest and must be read again. `bytes_sent`: what this try sent."""

    bytes_sent = 0


class InUse(Refused):
    """A live run of the job reads the data that would change."""


@dataclass(frozen=True)
class Shipment:
    """What goes to every host: one release, and the data sets by name."""

    job: str
    manifest: Manifest
    packer: Packer
    changes: Changes
    data: dict[str, DataListing] = field(default_factory=dict)


@dataclass
class Synced:
    """What happened on one host."""

    release: str
    bytes_sent: int = 0
    seconds: float = 0.0
    sent: list[str] = field(default_factory=list)  # "code", "data digits"
    source: str | None = None  # the host that fed it data; "" and None: this machine


def inside(job: Job, source: str) -> str | None:
    """The path of a data source relative to the code, or None where it lies outside."""
    code = Path(job.code).resolve()
    path = Path(source).resolve()
    return path.relative_to(code).as_posix() if path != code and path.is_relative_to(code) else None


def read_shipment(job: Job, cache: Path | None) -> Shipment:
    """Reads code and data. Raises ConfigError or Refused: missing, empty, git missing."""
    sources = [*job.data.values(), *([job.setup_wheels] if job.setup_wheels else [])]
    left_out = [*job.keep, *(path for source in sources if (path := inside(job, source)))]
    manifest = read_tree(Path(job.code), exclude=left_out, cache=cache)
    data = {name: read_data(Path(source)) for name, source in job.data.items()}
    packer = Packer(manifest)
    return Shipment(job.name, manifest, packer, Changes(manifest, packer, Earlier(cache, manifest.root)), data)


def sync(
    fleet: Fleet, hosts: tuple[Host, ...], shipment: Shipment, emit: Emit, on_done: Callable[[str, Any], None] | None = None
) -> dict[str, Synced | TfdeployError]:
    """Every host's outcome. A host that fails does not stop the others."""

    def one(session: Session) -> Synced:
        began = time.monotonic()
        done = Synced(shipment.manifest.release)
        agent = session.agent()
        _send_code(session, agent, shipment, done, emit)
        done.seconds = time.monotonic() - began
        return done

    results = fleet.each(hosts, one, on_done=on_done)
    began = time.monotonic()
    live = tuple(host for host in hosts if isinstance(results[host.name], Synced))
    for name, outcome in send_data_sets(fleet, live, shipment.job, shipment.data, emit).items() if shipment.data else ():
        done = results[name]
        if isinstance(outcome, TfdeployError):
            results[name] = outcome
        elif isinstance(done, Synced):
            done.bytes_sent += outcome.received_bytes
            done.sent += outcome.sets
            done.source = outcome.source
            done.seconds += time.monotonic() - began
    for name, result in results.items():
        if isinstance(result, Synced):
            emit_transfer(emit, name, "all", "done", result.bytes_sent, result.bytes_sent)
    return results


def _send_code(session: Session, agent: AgentChannel, shipment: Shipment, done: Synced, emit: Emit) -> None:
    where = {"job": shipment.job, "release": shipment.manifest.release}
    there = agent.call(RELEASE_STATE, {**where, "bases": shipment.changes.bases()})
    if there.present:
        return
    kept = {"keep_releases": KEEP_RELEASES}
    whole, sent = send_change(agent, shipment.changes, there, {**where, **kept}, session.host.name, emit)
    done.bytes_sent += sent
    if whole:
        done.sent.append("code")
        return
    begun = agent.call(RELEASE_BEGIN, where, blob=shipment.packer.manifest(), timeout_s=600)
    host, ours = session.host.name, shipment.packer.paths
    wanted, staging = only_of(ours, begun.missing, host), below_workdir(session, begun.staging)
    if wanted and not begun.rsync:
        raise rsync_missing(session.target)
    done.sent.append("code")
    for again in (False, True):  # a second try repairs a bad transfer; if it fails too, the tree has changed
        if wanted and shipment.packer.fits(wanted):
            done.bytes_sent += _put(session, agent, shipment, wanted, {**where, "staging": staging}, emit, again)
        elif wanted:
            total = shipment.packer.size_bytes(wanted)
            names = [os.fsencode(path) for path in wanted]
            done.bytes_sent += _push(session, shipment.manifest.root, names, staging, total, "code", emit, delete=False)
        commit = {**where, "staging": staging, **kept}
        wanted = only_of(ours, agent.call(RELEASE_COMMIT, commit, timeout_s=600).changed, host)
        if not wanted:
            shipment.changes.keep()
            return
    changed = TreeChanged(
        f"{wanted[0]} changed while it was sent" + (f" (and {len(wanted) - 1} more)" if len(wanted) > 1 else ""),
        where=host,
        next="let whatever writes into the code folder finish, or list it in .tfdeployignore",
    )
    changed.bytes_sent = done.bytes_sent
    raise changed


def _put(
    session: Session, agent: AgentChannel, shipment: Shipment, wanted: list[str], where: Args, emit: Emit, again: bool
) -> int:
    """Sends small files through the open session. `again`: packs the files anew, for this host alone."""
    host, total, sent, done = session.host.name, shipment.packer.size_bytes(wanted), 0, 0
    emit_transfer(emit, host, "code", "begin", 0, total)
    try:
        for parcel in shipment.packer.parcels(wanted, fresh=again):
            agent.call(RELEASE_PUT, {**where, "files": parcel.files}, blob=parcel.packed, timeout_s=600)
            sent, done = sent + len(parcel.packed), done + parcel.raw_bytes
            emit_transfer(emit, host, "code", "moving", done, total)
    except TfdeployError:
        emit_transfer(emit, host, "code", "failed", 0, total)
        raise
    emit_transfer(emit, host, "code", "done", total, total)
    return sent


def send_data(session: Session, agent: AgentChannel, job: str, name: str, listing: DataListing, done: Synced, emit: Emit) -> None:
    """Makes the data set on this host complete, under the job's lock. Adds what was sent to `done`."""
    where = {"job": job, "name": name}
    for again in range(TRIES):
        there = agent.call(DATA_STATE, where, timeout_s=600)
        if there is not None and there.digest == listing.digest:
            return
        folder = below_workdir(session, _begin_data(agent, job, name, listing, session.host.name).folder)
        what = f"data {name}"
        done.sent.append(what)
        names = None if listing.is_folder else [os.fsencode(Path(listing.source).name)]
        root = listing.source if listing.is_folder else str(Path(listing.source).parent)
        done.bytes_sent += _push(
            session, root, names, folder, listing.total_bytes, what, emit, delete=listing.is_folder, anew=again > 0
        )
        now = read_data(Path(listing.source))
        unchanged = now.stamp == listing.stamp  # finer than the digest: size and mtime may be the same after a write
        if unchanged and agent.call(DATA_COMMIT, {**where, "digest": listing.digest}, timeout_s=600).ok:
            return
        note(emit, f"data {name} changed while it was sent: sending it again", level="warning", host=session.host.name)
        listing = now
    raise Refused(
        f"data set {name} keeps changing while it is sent", where=session.host.name, next=f"stop what writes to {listing.source}"
    )


def _begin_data(
    agent: AgentChannel, job: str, name: str, listing: DataListing, host: str, blob: bytes = b"", **more: Any
) -> DataPlace:
    """The folder to fill. Raises InUse."""
    try:
        return agent.call(DATA_BEGIN, {"job": job, "name": name, "bytes": listing.total_bytes, **more}, blob=blob, timeout_s=600)
    except AgentError as error:
        if error.code != "live_run":
            raise
        raise InUse(error.what, where=host, next=error.next) from error


def _push(
    session: Session,
    root: str,
    names: list[bytes] | None,
    folder: str,
    total: int,
    what: str,
    emit: Emit,
    *,
    delete: bool,
    anew: bool = False,
) -> int:
    host = session.host.name
    emit_transfer(emit, host, what, "begin", 0, total)

    def moving(done: int, _total: int | None = None) -> None:
        emit_transfer(emit, host, what, "moving", done, total)

    try:
        sent = push(session.target, root, names, folder, delete=delete, anew=anew, on_progress=moving)
    except TfdeployError:
        emit_transfer(emit, host, what, "failed", 0, total)
        raise
    emit_transfer(emit, host, what, "done", total, total)
    return sent


def sync_job(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    job: Job,
    holder: LockHolder,
    cache: Path | None,
    emit: Emit,
    confirm: Confirm = never_confirm,
) -> dict[str, Synced | TfdeployError]:
    """`tfdeploy sync`: locks, reads the tree, sends; reads it again for the hosts where it changed meanwhile."""
    failed_to_connect = _connecting(fleet, hosts)
    shipment = read_shipment(job, cache)
    for warning in shipment.manifest.warnings:
        note(emit, warning, level="warning")
    results: dict[str, Synced | TfdeployError] = {**failed_to_connect()}
    before = Counter[str]()
    wanted = tuple(host for host in hosts if host.name not in results)
    for _ in range(TRIES):
        settled = _settled(fleet, wanted, shipment, emit)
        results.update(settled)
        wanted = tuple(host for host in wanted if host.name not in settled)
        held, failed = try_lock(fleet, wanted, job.name, "sync", holder, emit)
        try:
            results.update({**failed, **(_refusals_by_host(fleet, held, shipment, confirm) or sync(fleet, held, shipment, emit))})
        finally:
            release(fleet, held, job.name)
        changed = {name: result.bytes_sent for name, result in results.items() if isinstance(result, TreeChanged)}
        before.update(changed)
        wanted = tuple(host for host in hosts if host.name in changed)
        if not wanted:
            break
        shipment = read_shipment(job, cache)
    for name, result in results.items():
        if isinstance(result, Synced):
            result.bytes_sent += before[name]
    return {host.name: results[host.name] for host in hosts}


def _connecting(fleet: Fleet, hosts: tuple[Host, ...]) -> Callable[[], dict[str, TfdeployError]]:
    """Starts the agents there, while the tree is read here. The function waits for that: the hosts that cannot be used."""
    found: dict[str, AgentChannel | TfdeployError] = {}

    def connect() -> None:
        with contextlib.suppress(Exception):  # a bug shows again when the hosts are asked
            found.update(fleet.each(hosts, lambda session: session.agent()))

    def failed() -> dict[str, TfdeployError]:
        thread.join()
        return split(found)[1]

    thread = threading.Thread(target=connect, name="sync-connect", daemon=True)
    thread.start()
    return failed


def _settled(fleet: Fleet, hosts: tuple[Host, ...], shipment: Shipment, emit: Emit) -> dict[str, Synced | TfdeployError]:
    """The hosts that have all of it already, and those that cannot be asked: where nothing changes nothing is locked."""
    if shipment.data:
        return {}

    def ask(session: Session) -> Synced | None:
        began = time.monotonic()
        done = Synced(shipment.manifest.release)
        if not session.agent().call(RELEASE_STATE, {"job": shipment.job, "release": done.release}).present:
            return None
        done.seconds = time.monotonic() - began
        emit_transfer(emit, session.host.name, "all", "done", 0, 0)
        return done

    return {name: found for name, found in fleet.each(hosts, ask).items() if found is not None}


def _refusals_by_host(
    fleet: Fleet, hosts: tuple[Host, ...], shipment: Shipment, confirm: Confirm
) -> dict[str, Synced | TfdeployError]:
    """`data_refusals`, with what is not confirmed as the error of every host."""
    try:
        return data_refusals(fleet, hosts, shipment, confirm)
    except Refused as error:
        return {host.name: error for host in hosts}


def data_refusals(
    fleet: Fleet, hosts: tuple[Host, ...], shipment: Shipment, confirm: Confirm
) -> dict[str, Synced | TfdeployError]:
    """Before anything is sent: host -> its refusal where data would change under a live run on any host, else nothing.

    Raises Refused where most of a data set would be deleted and the operator does not confirm.
    """

    losing: Losses = {}

    def ask(session: Session) -> None:
        for name, listing in shipment.data.items():
            about = (session.agent(), shipment.job, name, listing, session.host.name)
            place = _begin_data(*about, digest=listing.digest, ask=True, staged=True)
            if listing.is_folder and place.files > A_FEW and len(listing.names) < MOST_NAMES_BYTES:
                place = _begin_data(*about, blob=listing.names, digest=listing.digest, ask=True, staged=True)
            if is_most(place.losing, place.files):
                losing.setdefault(name, {})[session.host.name] = (place.losing, place.files)

    found = fleet.each(hosts, ask) if shipment.data else {}
    live = [name for name, error in found.items() if isinstance(error, InUse)]
    if live:
        other = Refused(f"nothing was sent: data would change under a live run on {', '.join(live)}")
        return {name: error if isinstance(error, TfdeployError) else other for name, error in found.items()}
    refuse_losses(losing, confirm)
    return {}
