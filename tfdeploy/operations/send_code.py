"""Code becomes a release on every host: small code in one call to each, what many hosts lack of larger code by a broadcast."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfdeploy.errors import Refused, TfdeployError
from tfdeploy.model.answers.files import RELEASE_BEGIN, RELEASE_COMMIT, RELEASE_PUT, RELEASE_STATE, Present
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host
from tfdeploy.model.manifest import Manifest
from tfdeploy.operations.broadcast.release_files import Begun, send_release_files
from tfdeploy.operations.broadcast.source import SourceChanged
from tfdeploy.operations.confine import below_workdir, only_of
from tfdeploy.operations.copy.push_data import push_shown
from tfdeploy.operations.copy.send_change import send_change
from tfdeploy.operations.emit import emit_transfer
from tfdeploy.operations.lock import JobLock
from tfdeploy.operations.shipment import Shipment
from tfdeploy.transport.protocols import AgentChannel, Fleet, Session
from tfdeploy.transport.rsync.messages import rsync_missing

KEEP_RELEASES = 5


class TreeChanged(Refused):
    """The code folder no longer matches its manifest and must be read again. `bytes_sent`: what this try sent."""

    bytes_sent = 0


@dataclass
class Synced:
    """What happened on one host."""

    release: str
    bytes_sent: int = 0
    seconds: float = 0.0
    sent: list[str] = field(default_factory=list)  # "code", "data digits"
    source: str | None = None  # the host that fed it data; "" and None: this machine


def send_code(
    fleet: Fleet, hosts: tuple[Host, ...], shipment: Shipment, emit: Emit, there: Mapping[str, Present], lock: JobLock
) -> dict[str, Synced | TfdeployError]:
    """Send small code in one call to each host. Of larger code, each host lists what it lacks and gets it by a broadcast.

    `lock`: released on each host as soon as it has the code; no host waits for another.
    """
    began = time.monotonic()
    alone = len(hosts) == 1
    waiting: dict[str, Begun] = {}
    dones = {host.name: Synced(shipment.manifest.release) for host in hosts}

    def begin(session: Session) -> Synced:
        done = dones[session.host.name]
        begun = _begin_code(session, shipment, done, emit, there.get(session.host.name), alone=alone)
        if begun is not None:
            waiting[session.host.name] = begun
        else:
            lock.release_host(session)
        done.seconds = time.monotonic() - began
        return done

    def place(session: Session, *, is_there: bool = True) -> None:
        name = session.host.name
        _finish_code(waiting[name], shipment, dones[name], emit, is_there=is_there)
        dones[name].seconds = time.monotonic() - began
        lock.release_host(session)

    def finish(session: Session) -> Synced:
        name = session.host.name
        done, outcome = dones[name], sent.get(name)
        if isinstance(outcome, SourceChanged):
            raise _tree_changed(shipment.manifest, outcome.what, done)
        if isinstance(outcome, TfdeployError):
            raise outcome
        if outcome is not None:
            done.bytes_sent += outcome.received_bytes
            done.source = outcome.source
            return done
        place(session, is_there=False)
        return done

    results = fleet.each(hosts, begin)
    if waiting:
        sent = send_release_files(shipment.job, shipment.manifest, waiting, emit, place)
        results.update(fleet.each(tuple(host for host in hosts if host.name in waiting), finish))
    return results


def _begin_code(
    session: Session, shipment: Shipment, done: Synced, emit: Emit, there: Present | None, *, alone: bool
) -> Begun | None:
    """None: the release is there. `alone`: no other host gets it. What was `there` before the lock was taken may be another by
    now: release.change checks what it builds on."""
    agent, where = session.agent(), {"job": shipment.job, "release": shipment.manifest.release}
    there = there or release_state(session, shipment)
    if there.present:
        return None
    args = {**where, "keep_releases": KEEP_RELEASES}
    whole, sent = send_change(agent, shipment.changes, there, args, session.host.name, emit, alone=alone)
    done.bytes_sent += sent
    done.sent.append("code")
    if whole:
        return None
    begun = agent.call(RELEASE_BEGIN, where, blob=shipment.packer.manifest(), timeout_s=600)
    wanted = only_of(shipment.packer.paths, begun.missing, session.host.name)
    if wanted and not begun.rsync:
        raise rsync_missing(session.target)
    return Begun(session, below_workdir(session, begun.staging), tuple(wanted))


def release_state(session: Session, shipment: Shipment) -> Present:
    args = {"job": shipment.job, "release": shipment.manifest.release, "bases": shipment.changes.bases()}
    return session.agent().call(RELEASE_STATE, args)


def _finish_code(begun: Begun, shipment: Shipment, done: Synced, emit: Emit, *, is_there: bool) -> None:
    """`is_there`: a broadcast brought what the host lacks."""
    session, agent, host = begun.session, begun.session.agent(), begun.session.host.name
    where = {"job": shipment.job, "release": shipment.manifest.release, "staging": begun.staging}
    wanted, ours = list(begun.wanted), shipment.packer.paths
    for again in (False, True):  # a second try repairs a bad transfer; if it fails too, the tree has changed
        if wanted and is_there and not again:
            pass
        elif wanted and shipment.packer.fits(wanted):
            done.bytes_sent += _put(session, agent, shipment, wanted, where, emit, again)
        elif wanted:
            total = shipment.packer.size_bytes(wanted)
            names = [os.fsencode(path) for path in wanted]
            done.bytes_sent += push_shown(
                session, shipment.manifest.root, names, begun.staging, total, "code", emit, delete=False
            )
        commit = {**where, "keep_releases": KEEP_RELEASES}
        wanted = only_of(ours, agent.call(RELEASE_COMMIT, commit, timeout_s=600).changed, host)
        if not wanted:
            shipment.changes.keep()
            return
    more = f" (and {len(wanted) - 1} more)" if len(wanted) > 1 else ""
    raise _tree_changed(shipment.manifest, f"{wanted[0]} changed while it was sent{more}", done, host)


def _tree_changed(manifest: Manifest, what: str, done: Synced, host: str | None = None) -> TreeChanged:
    next_ = "let whatever writes into the code folder finish, or list it in .tfdeployignore"
    changed = TreeChanged(what, where=host or manifest.root, next=next_)
    changed.bytes_sent = done.bytes_sent
    return changed


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
