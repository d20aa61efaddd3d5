"""A data set to all hosts of a job: what each lacks is found first, then one broadcast brings it, then each puts it in place.

The caller holds the job's lock on every host. What runs read does not change before the whole data set is there.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfdeploy.agent.listing import Listing
from tfdeploy.errors import BadAnswer, HostFailed, Refused, TfdeployError
from tfdeploy.model.answers.broadcast import DATA_LACK
from tfdeploy.model.answers.files import DATA_COMMIT, DATA_STATE
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host
from tfdeploy.operations.broadcast.broadcast import Broadcast
from tfdeploy.operations.broadcast.source import Source, SourceChanged
from tfdeploy.operations.broadcast.taker import Taker
from tfdeploy.operations.emit import emit_transfer, note
from tfdeploy.transport.protocols import Fleet, Session
from tfdeploy.tree import DataListing, read_data

TRIES = 3  # a source that changes while it is sent is sent again this often
LOOK_S = 600.0
MOST_BITMAP = 64 << 20


@dataclass
class DataSent:
    """What one host was sent: bytes that it received, and from whom it had the last of them."""

    received_bytes: int = 0
    sets: list[str] = field(default_factory=list)
    source: str | None = None


@dataclass
class _Lack:
    session: Session
    rows: list[int]
    lacking_bytes: int
    folder_id: str


Outcome = DataSent | TfdeployError


def send_data_sets(
    fleet: Fleet, hosts: tuple[Host, ...], job: str, data: Mapping[str, DataListing], emit: Emit
) -> dict[str, Outcome]:
    """Every host's outcome. A host that fails does not stop the others."""
    found: dict[str, Outcome] = {host.name: DataSent() for host in hosts}
    for name, listing in data.items():
        live = tuple(host for host in hosts if isinstance(found[host.name], DataSent))
        for host, outcome in _send_changing(fleet, live, job, name, listing, emit).items():
            before = found[host]
            if isinstance(before, DataSent) and isinstance(outcome, DataSent):
                before.received_bytes += outcome.received_bytes
                before.sets += outcome.sets
                before.source = outcome.source or before.source
            else:
                found[host] = outcome
    return found


def _send_changing(
    fleet: Fleet, hosts: tuple[Host, ...], job: str, name: str, listing: DataListing, emit: Emit
) -> dict[str, Outcome]:
    """One data set; again where it changed meanwhile."""
    for _ in range(TRIES):
        try:
            return _Sending(fleet, job, name, listing, emit).to(hosts)
        except SourceChanged as error:
            note(emit, f"data {name}: {error.what}: sending it again", level="warning")
        listing = read_data(Path(listing.source))
    changing = Refused(f"data set {name} keeps changing while it is sent", next=f"stop what writes to {listing.source}")
    return {host.name: changing for host in hosts}


class _Sending:
    """Of one data set in one state."""

    def __init__(self, fleet: Fleet, job: str, name: str, listing: DataListing, emit: Emit) -> None:
        self._fleet, self._job, self._name, self._listing, self._emit = fleet, job, name, listing, emit
        self._where = {"job": job, "name": name}
        self._packed: bytes | None = None
        self._what = f"data {name}"

    def to(self, hosts: tuple[Host, ...]) -> dict[str, Outcome]:
        """Raises SourceChanged."""
        found: dict[str, Outcome] = dict(_split(self._fleet.each(hosts, self._state))[1])
        waiting = tuple(host for host in hosts if host.name not in found)
        alone: set[str] = set()  # hosts that were taken for sharing another's folder, and do not
        while waiting:
            lacks, failed = _split(self._fleet.each(waiting, self._lack))
            found.update(failed)
            groups = _groups(lacks, alone)
            found.update(self._broadcast({group[0]: lacks[group[0]] for group in groups}))
            others = [name for group in groups for name in group[1:]]
            alone.update(others)
            waiting = tuple(host for host in hosts if host.name in others and not self._has(host, found))
        return {host.name: found[host.name] for host in hosts}

    def _is_there(self, session: Session) -> bool:
        there = session.agent().call(DATA_STATE, self._where, timeout_s=LOOK_S)
        return there is not None and (there.digest, there.attributes) == (self._listing.digest, self._listing.attributes)

    def _state(self, session: Session) -> DataSent | None:
        return DataSent() if self._is_there(session) else None

    def _has(self, host: Host, found: dict[str, Outcome]) -> bool:
        """Whether another host brought it there too: they share the folder."""
        there = self._fleet.each((host,), self._is_there)[host.name]
        if there is True:
            found[host.name] = DataSent(sets=[self._what])
        elif isinstance(there, TfdeployError):
            found[host.name] = there
        return there is not False

    def _lack(self, session: Session) -> _Lack:
        if self._packed is None:
            self._packed = self._listing.rows.pack()
        args = {**self._where, "reserve": session.host.reserve}
        said = session.agent().call(DATA_LACK, args, blob=self._packed, timeout_s=LOOK_S)
        return _Lack(session, _rows_of(said.lacking, self._listing.rows, session.host.name), said.lacking_bytes, said.folder_id)

    def _broadcast(self, lacks: Mapping[str, _Lack]) -> dict[str, Outcome]:
        """Raises SourceChanged."""
        rows = sorted({row for lack in lacks.values() for row in lack.rows if self._listing.rows.size(row)})
        failed: dict[str, TfdeployError] = {}
        received: dict[str, tuple[int, str | None]] = {}
        if rows:
            source = Source(self._listing.root, self._listing.rows, rows)
            total = source.cut.total_bytes
            takers = {name: Taker(lack.session, lack.lacking_bytes, total) for name, lack in lacks.items()}
            self._tell(takers, "begin")
            moving = self._progress
            broadcast = Broadcast(source, takers, self._emit, moving)
            try:
                failed = broadcast.run(lambda taker: self._join_args(taker, rows))
            finally:
                self._tell(takers, "failed", lambda taker: not taker.complete)
            self._tell(takers, "done", lambda taker: taker.complete)
            received = {name: (taker.received_bytes, broadcast.fed_by(name)) for name, taker in takers.items()}
        if rows and read_data(Path(self._listing.source)).stamp != self._listing.stamp:  # finer than the digest
            raise SourceChanged("it changed while it was sent", where=self._listing.source)
        hosts = tuple(lack.session.host for name, lack in lacks.items() if name not in failed)
        placed = self._fleet.each(hosts, self._commit)
        outcomes: dict[str, Outcome] = {**failed}
        for name, result in placed.items():
            count, fed_by = received.get(name, (0, None))
            outcomes[name] = result if isinstance(result, TfdeployError) else DataSent(count, [self._what], fed_by)
        return outcomes

    def _join_args(self, taker: Taker, rows: list[int]) -> Args:
        moved = bytearray((len(self._listing.rows) + 7) // 8)
        for row in rows:
            moved[row >> 3] |= 1 << (row & 7)
        bitmap = base64.b64encode(zlib.compress(bytes(moved), 1)).decode("ascii")
        return {**self._where, "moved": bitmap, **_limits(taker.host)}

    def _commit(self, session: Session) -> None:
        if not session.agent().call(DATA_COMMIT, {**self._where, "staged": True}, timeout_s=LOOK_S).ok:
            raise HostFailed(f"data {self._name} did not arrive whole", where=session.host.name, next="the same command again")

    def _progress(self, host: str, received: int, lacking: int) -> None:
        emit_transfer(self._emit, host, self._what, "moving", min(received, lacking), lacking)

    def _tell(self, takers: Mapping[str, Taker], state: str, which: Callable[[Taker], bool] = lambda taker: True) -> None:
        for name, taker in takers.items():
            if taker.lacking_bytes and which(taker):
                sent = taker.lacking_bytes if state == "done" else 0
                emit_transfer(self._emit, name, self._what, state, sent, taker.lacking_bytes)


def _limits(host: Host) -> Args:
    return {"ports": list(host.ports), "reserve": host.reserve, "rate": host.bwlimit or 0}


def _groups(lacks: Mapping[str, _Lack], alone: set[str]) -> list[list[str]]:
    """Hosts by the folder that they share; only the first of a group receives."""
    groups: dict[str, list[str]] = {}
    for name, lack in lacks.items():
        groups.setdefault(lack.folder_id if lack.folder_id and name not in alone else f"only {name}", []).append(name)
    return list(groups.values())


def _rows_of(lacking: str, rows: Listing, host: str) -> list[int]:
    """Raises BadAnswer."""
    try:
        bitmap = zlib.decompressobj().decompress(base64.b64decode(lacking, validate=True), MOST_BITMAP)
    except (ValueError, zlib.error) as error:
        raise BadAnswer(f"what it lacks is no bitmap: {error}", where=host) from error
    if len(bitmap) != (len(rows) + 7) // 8:
        raise BadAnswer("what it lacks is no bitmap of the listing", where=host)
    found = [8 * place + bit for place, byte in enumerate(bitmap) if byte for bit in range(8) if byte >> bit & 1]
    if any(row >= len(rows) or not rows.is_content(row) for row in found):
        raise BadAnswer("it lacks rows that are no files", where=host)
    return found


def _split(found: Mapping[str, object]) -> tuple[dict[str, _Lack], dict[str, Outcome]]:
    lacks = {name: each for name, each in found.items() if isinstance(each, _Lack)}
    return lacks, {name: each for name, each in found.items() if isinstance(each, DataSent | TfdeployError)}
