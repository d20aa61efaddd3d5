"""Send the code to every host: ask which files the host lacks, send them, and commit them.

On a host, the code is stored as a release: a folder whose name is a digest of its content. There
are three ways to send the missing files. If several hosts lack the same files, of at least
LEAST_BROADCAST_BYTES in all, the files are broadcast: hosts pass them on to other hosts. Otherwise,
up to MOST_BYTES are sent within the call that commits the release, and more bytes by rsync.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.files import RELEASE_BEGIN, RELEASE_COMMIT, RELEASE_STATE
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Hosts, hosts_named
from tfdeploy.operations.confine import check_below_workdir, check_requested_paths
from tfdeploy.operations.copy.code_files import (
    LEAST_BROADCAST_BYTES,
    MOST_BYTES,
    CodeChanged,
    ReadyHost,
)
from tfdeploy.operations.emit import emit_transfer, transfer_events
from tfdeploy.operations.lock import JobLock
from tfdeploy.operations.sending.shipment import Shipment
from tfdeploy.transport.protocols import Fleet, Outcomes, Session
from tfdeploy.transport.rsync.messages import rsync_missing

CALL_S = 600.0


@dataclass
class SyncResult:
    """What was sent to one host."""

    release: str
    bytes_sent: int = 0
    seconds: float = 0.0
    sent: list[str] = field(default_factory=list)  # what was sent, such as "code" or "data digits"
    # The host that sent the last data; "" or None stands for the control machine.
    source: str | None = None


def send_code(
    fleet: Fleet, hosts: Hosts, shipment: Shipment, emit: Emit, lock: JobLock
) -> Outcomes[SyncResult]:
    """Send the code to all hosts, and return every host's outcome.

    As soon as a host has the code, its `lock` is released. Hosts wait for each other only if the
    code is broadcast.
    """
    began = time.monotonic()
    waiting: dict[str, ReadyHost] = {}
    outcomes = {host.name: SyncResult(shipment.manifest.release) for host in hosts}

    def begin(session: Session) -> SyncResult:
        name = session.host.name
        if has_release(session, shipment):
            return commit_and_release(session)
        begun = _begin_release(session, shipment, outcomes[name])
        if (
            len(hosts) > 1
            and shipment.code.size_bytes(begun.missing_paths) >= LEAST_BROADCAST_BYTES
        ):
            waiting[name] = begun
            return outcomes[name]
        return send(begun)

    def send(ready: ReadyHost) -> SyncResult:
        _send_missing_and_commit(ready, shipment, outcomes[ready.session.host.name], emit)
        return commit_and_release(ready.session)

    def put_in_place(session: Session) -> None:
        """Commit the release on a host that has received all files of the broadcast."""
        begun = waiting[session.host.name]
        shipment.code.check_unchanged(begun.missing_paths)
        _commit_release(begun, shipment)
        commit_and_release(session)

    def commit_and_release(session: Session) -> SyncResult:
        done = outcomes[session.host.name]
        done.seconds = time.monotonic() - began
        lock.release_host(session)
        return done

    def finish(session: Session) -> SyncResult:
        done, outcome = outcomes[session.host.name], sent.get(session.host.name)
        if isinstance(outcome, TfdeployError):
            raise outcome
        if outcome is None:
            return send(waiting[session.host.name])
        done.bytes_sent += outcome.received_bytes
        done.source = outcome.source
        return done

    results = fleet.each(hosts, begin)
    if waiting:
        # Imported only here, because small code needs no broadcast and the import takes 40 ms.
        from tfdeploy.operations.broadcast.release_files import send_release_files

        sent = send_release_files(
            shipment.job, shipment.manifest.release, shipment.code, waiting, emit, put_in_place
        )
        results.update(fleet.each(hosts_named(hosts, waiting), finish))
    for name, result in results.items():
        if isinstance(result, CodeChanged):
            result.bytes_sent = outcomes[name].bytes_sent
    return results


def has_release(session: Session, shipment: Shipment) -> bool:
    args = {"job": shipment.job, "release": shipment.manifest.release}
    return session.agent().call(RELEASE_STATE, args).present


def _begin_release(session: Session, shipment: Shipment, outcome: SyncResult) -> ReadyHost:
    args, code = {"job": shipment.job, "release": shipment.manifest.release}, shipment.code
    begun = session.agent().call(RELEASE_BEGIN, args, blob=code.packed_manifest, timeout_s=CALL_S)
    outcome.bytes_sent += len(code.packed_manifest)
    outcome.sent.append("code")
    missing = check_requested_paths(code.paths, begun.missing, session.host.name)
    if code.size_bytes(missing) > MOST_BYTES and not begun.rsync:
        raise rsync_missing(session.target)
    return ReadyHost(session, check_below_workdir(session, begun.staging), tuple(missing))


def _send_missing_and_commit(
    ready: ReadyHost, shipment: Shipment, outcome: SyncResult, emit: Emit
) -> None:
    """Send the missing files from this machine. Raises CodeChanged if the code has changed."""
    code, session, missing = shipment.code, ready.session, ready.missing_paths
    total = code.size_bytes(missing)
    if not missing:
        _commit_release(ready, shipment)
    elif total <= MOST_BYTES:
        with transfer_events(emit, session.host.name, "code", total):
            contents = code.packed_contents(missing)
            _commit_release(ready, shipment, contents)
        outcome.bytes_sent += len(contents)
    else:
        from tfdeploy.operations.copy.push_files import push_files

        host, names = session.host.name, [os.fsencode(path) for path in missing]

        def report_progress(sent: int) -> None:
            emit_transfer(emit, host, "code", "moving", sent, total)

        with transfer_events(emit, host, "code", total):
            outcome.bytes_sent += push_files(
                session, code.root, names, ready.staging, total, emit, report_progress
            )
        code.check_unchanged(missing)
        _commit_release(ready, shipment)


def _commit_release(ready: ReadyHost, shipment: Shipment, contents: bytes = b"") -> None:
    """Commit the release. `contents`: the missing files, if this call also sends them.

    Raises CodeChanged if the code has changed.
    """
    args = {"job": shipment.job, "release": shipment.manifest.release, "staging": ready.staging}
    answer = ready.session.agent().call(RELEASE_COMMIT, args, blob=contents, timeout_s=CALL_S)
    changed = check_requested_paths(shipment.code.paths, answer.changed, ready.session.host.name)
    if changed:
        raise shipment.code.code_changed_error(changed)
