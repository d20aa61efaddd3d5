"""A data set to all hosts of a job: what each lacks is found first, then broadcasts bring it, then each puts it in place.

The caller holds the job's lock on every host. What runs read does not change before the whole data set is there.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

from tfdeploy.agent import bitmap
from tfdeploy.errors import HostFailed, HostUnreachable, Refused, TfdeployError
from tfdeploy.model.answers.broadcast import BROADCAST_OFFER, DATA_COPY, DATA_LACK
from tfdeploy.model.answers.files import DATA_COMMIT
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host
from tfdeploy.operations.broadcast import bitmaps
from tfdeploy.operations.broadcast.bitmaps import NamedRows, RowSet
from tfdeploy.operations.broadcast.broadcast import Broadcast
from tfdeploy.operations.broadcast.data_set import LOOK_S, DataSet, is_there
from tfdeploy.operations.broadcast.held_source import HeldSource
from tfdeploy.operations.broadcast.source import Source, SourceChanged
from tfdeploy.operations.broadcast.split import Split
from tfdeploy.operations.broadcast.taker import Taker
from tfdeploy.operations.broadcast.wanted import Wanted, whole
from tfdeploy.operations.emit import emit_transfer, note
from tfdeploy.operations.lock import JobLock
from tfdeploy.planning.broadcast.streams import Stream
from tfdeploy.transport.protocols import Fleet, Session

TRIES = 3  # a source that changes while it is sent is sent again this often
COPY_S = 24 * 3600.0
STREAMS_AT_ONCE = 16


@dataclass
class DataSent:
    """What one host was sent: bytes that it received, and from whom it had the last of them."""

    received_bytes: int = 0
    sets: list[str] = field(default_factory=list)
    source: str | None = None


@dataclass
class _Lack:
    """`lacking`: rows of the whole data set."""

    session: Session
    wanted: Wanted
    lacking: NamedRows
    lacking_bytes: int
    folder_id: str


Outcome = DataSent | TfdeployError


def send_data_sets(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    job: str,
    data: Mapping[str, DataSet],
    emit: Emit,
    lock: JobLock | None = None,
) -> dict[str, Outcome]:
    """Every host's outcome. A host that fails does not stop the others. `lock`: released on each host that has its last set."""
    found: dict[str, Outcome] = {host.name: DataSent() for host in hosts}
    last = {host.name: name for name, each in data.items() for host in hosts if each.wanted(host.name) is not None}
    for name, each in data.items():
        live = tuple(host for host in hosts if isinstance(found[host.name], DataSent) and each.wanted(host.name) is not None)
        lock_release = _LockRelease(lock or JobLock(), frozenset(host for host in last if last[host] == name))
        for host, outcome in _send_changing(fleet, live, job, name, each, emit, lock_release).items() if live else ():
            before = found[host]
            if isinstance(before, DataSent) and isinstance(outcome, DataSent):
                before.received_bytes += outcome.received_bytes
                before.sets += outcome.sets
                before.source = outcome.source or before.source
            else:
                found[host] = outcome
    return found


@dataclass(frozen=True)
class _LockRelease:
    """The lock, and the hosts for which the set that is sent now is the last one."""

    lock: JobLock
    hosts: frozenset[str]

    def release_host(self, session: Session) -> None:
        if session.host.name in self.hosts:
            self.lock.release_host(session)


def _send_changing(
    fleet: Fleet, hosts: tuple[Host, ...], job: str, name: str, data: DataSet, emit: Emit, lock_release: _LockRelease
) -> dict[str, Outcome]:
    """One data set; again where it changed meanwhile. Parts are not made anew: the launch or sync has planned with them."""
    lost: dict[str, Outcome] = {}
    for _ in range(1 if data.split else TRIES):
        try:
            return {**_Sending(fleet, job, name, data, emit, lock_release).to(hosts), **lost}
        except SourceChanged as error:
            changed = error
        lost.update(lock_release.lock.reacquire())
        hosts = tuple(host for host in hosts if host.name not in lost)
        if data.split is None:
            note(emit, f"data {name}: {changed.what}: sending it again", level="warning")
            data = DataSet(data.read_again(fleet), data.origin)
    where = data.listing.source if data.origin is None else f"{data.origin.name}:{data.listing.source}"
    changing = Refused(
        f"data set {name} changed while it was sent", next=f"stop what writes to {where}, and the same command again"
    )
    return {**{host.name: changing for host in hosts}, **lost}


class _Sending:
    """Of one data set in one state."""

    def __init__(self, fleet: Fleet, job: str, name: str, data: DataSet, emit: Emit, lock_release: _LockRelease) -> None:
        self._fleet, self._job, self._name, self._data, self._emit = fleet, job, name, data, emit
        self._lock_release = lock_release
        self._where = {"job": job, "name": name}
        self._what = f"data {name}"
        self._whole = whole(data.listing)
        self._complete: list[Host] = []  # they had all of it before
        self._received: dict[str, dict[int, int]] = {}  # by host and stream
        self._arrived: dict[str, dict[int, int]] = {}  # of what it lacked: received, or found there
        self._rows: dict[str, NamedRows] = {}  # by name: what a host is to have, and what it says that it lacks
        self._lock = Lock()

    def to(self, hosts: tuple[Host, ...]) -> dict[str, Outcome]:
        """Raises SourceChanged."""
        found: dict[str, Outcome] = dict(_split(self._fleet.each(hosts, self._state))[1])
        self._complete = [host for host in hosts if isinstance(found.get(host.name), DataSent)]
        waiting = tuple(host for host in hosts if host.name not in found)
        alone: set[str] = set()  # hosts that were taken for sharing another's folder, and do not
        while waiting:
            lacks, failed = _split(self._fleet.each(waiting, self._lack))
            found.update(failed)
            groups = _groups(lacks, alone)
            found.update(self._bring({group[0]: lacks[group[0]] for group in groups}))
            others = [name for group in groups for name in group[1:]]
            alone.update(others)
            waiting = tuple(host for host in hosts if host.name in others and not self._has(host, found))
        return {host.name: found[host.name] for host in hosts}

    # --- what hosts have

    def _wanted(self, host: str) -> Wanted:
        return self._whole if self._data.split is None else self._data.split.wanted[host]

    def _is_there(self, session: Session) -> bool:
        return is_there(session, self._where, self._wanted(session.host.name))

    def _state(self, session: Session) -> DataSent | None:
        if not self._is_there(session):
            return None
        self._lock_release.release_host(session)
        return DataSent()

    def _has(self, host: Host, found: dict[str, Outcome]) -> bool:
        """Whether another host brought it there too: they share the folder."""
        there = self._fleet.each((host,), self._state)[host.name]
        if isinstance(there, DataSent):
            found[host.name] = DataSent(sets=[self._what])
        elif isinstance(there, TfdeployError):
            found[host.name] = there
        return there is not None

    def _lack(self, session: Session) -> _Lack:
        wanted = self._wanted(session.host.name)
        args = {**self._where, "reserve": session.host.reserve}
        said = session.agent().call(DATA_LACK, args, blob=wanted.packed, timeout_s=LOOK_S)
        name = f"{wanted.digest} {said.lacking}"
        with self._lock:
            if name not in self._rows:
                own = bitmaps.rows_of(said.lacking, wanted.rows, session.host.name)
                self._rows[name] = NamedRows(name, array("I", (wanted.places[row] for row in own)))
        return _Lack(session, wanted, self._rows[name], said.lacking_bytes, said.folder_id)

    # --- what they get

    def _bring(self, lacks: dict[str, _Lack]) -> dict[str, Outcome]:
        """Raises SourceChanged."""
        found: dict[str, Outcome] = {**self._copy_at_origin(lacks)}
        streams = self._data.streams(
            {name: lack.lacking for name, lack in lacks.items() if name not in found},
            {name: lack.wanted.places for name, lack in lacks.items()},
            self._complete,
        )
        for name, lack in lacks.items():
            self._tell(name, "begin", lack.lacking_bytes)
        try:
            fed_by = self._send_all(streams, lacks, found)
        finally:
            for name, lack in lacks.items():
                received = sum(self._received.get(name, {}).values())  # not what was found there, or is a hole
                self._tell(name, "failed" if isinstance(found.get(name), TfdeployError) else "done", lack.lacking_bytes, received)
        placed = self._fleet.each(tuple(lack.session.host for name, lack in lacks.items() if name not in found), self._commit)
        for name, result in placed.items():
            count = sum(self._received.get(name, {}).values())
            found[name] = result if isinstance(result, TfdeployError) else DataSent(count, [self._what], fed_by.get(name))
        return found

    def _copy_at_origin(self, lacks: Mapping[str, _Lack]) -> dict[str, TfdeployError]:
        """The host that the data comes from has no need of a network."""
        lack = lacks.get(self._data.origin.name) if self._data.origin else None
        if lack is None or not lack.lacking.rows:
            return {}
        try:
            lack.session.agent().call(DATA_COPY, {**self._where, "root": self._data.listing.root}, timeout_s=COPY_S)
        except TfdeployError as error:
            return {lack.session.host.name: error}
        lack.lacking = NamedRows("", ())
        return {}

    def _send_all(self, streams: list[Stream], lacks: Mapping[str, _Lack], found: dict[str, Outcome]) -> dict[str, str | None]:
        """Adds the hosts that failed to `found`. Returns who fed the others. Raises SourceChanged."""
        fed_by: dict[str, str | None] = {}
        whole_set = len(streams) == 1
        with ThreadPoolExecutor(STREAMS_AT_ONCE) as pool:
            sendings = [pool.submit(self._send, number, stream, lacks, whole_set) for number, stream in enumerate(streams)]
        for stream, sending in zip(streams, sendings, strict=True):
            try:
                broadcast, failed = sending.result()
            except SourceChanged:
                raise
            except TfdeployError as error:
                found.update({name: self._without_origin(error, name) for name in stream.takers})
                continue
            found.update({name: error for name, error in failed.items() if name in stream.takers})
            for name in stream.takers:
                feeder = broadcast.fed_by(name)
                fed_by[name] = fed_by.get(name) if feeder is None else feeder
            if whole_set:
                for name in stream.takers:
                    count = sum(self._received.get(name, {}).values())
                    found.setdefault(name, DataSent(count, [self._what], fed_by[name]))
        return fed_by

    def _without_origin(self, error: TfdeployError, host: str) -> TfdeployError:
        """For a host that waits for data of a host that is lost."""
        if self._data.origin is None:
            raise error
        kind = HostUnreachable if isinstance(error, HostUnreachable) else HostFailed
        return kind(f"{self._data.origin.name}, where the data comes from: {error.what}", where=host, next=error.next)

    def _send(
        self, number: int, stream: Stream, lacks: Mapping[str, _Lack], is_only: bool
    ) -> tuple[Broadcast, dict[str, TfdeployError]]:
        """With the errors of hosts. `is_only`: what its takers have then is put in place at once. Raises SourceChanged."""
        listing, rows, id_ = self._data.listing, RowSet(stream.rows, len(self._data.listing.rows)), secrets.token_hex(8)
        total = sum(listing.rows.size(row) for row in stream.rows)
        takers: dict[str, Taker] = {}
        if stream.lender is not None:  # the first: those that are near it are fed first
            try:
                takers[stream.lender] = self._lender(stream.lender, id_, rows, total)
            except TfdeployError as error:
                if self._data.origin is not None:
                    raise
                note(self._emit, f"{stream.lender} does not lend what it has: {error.what}", host=stream.lender)
        mine = {name: lacks[name] for name in stream.takers}
        sizes = listing.rows.sizes
        # Once for all hosts that lack the same, or are to have the same.
        lacking_bytes = {
            each: sum(sizes[row] for row in each.rows if row in rows) for each in {lack.lacking for lack in mine.values()}
        }
        wanted = {lack.wanted.digest: lack.wanted for lack in mine.values()}
        moved = {digest: bitmap.pack(each.bitmap(rows)) for digest, each in wanted.items()}
        for name, lack in mine.items():
            takers[name] = Taker(lack.session, lacking_bytes[lack.lacking], total)
        if self._data.origin is None:
            source = Source(listing.root, listing.rows, stream.rows)
        else:
            source = HeldSource(takers[self._data.origin.name].session, id_, listing.rows, stream.rows)
        broadcast = Broadcast(
            source,
            takers,
            self._emit,
            lambda host, arrived, _: self._progress(number, host, arrived, lacks),
            self._what if is_only else "",
            self._look_again,
            place=lambda taker: self._commit(taker.session) if is_only and not taker.lends else None,
            reconnect=self._reconnect,
            id=id_,
        )

        def join(taker: Taker) -> Args:
            files = {} if taker.lends else {"moved": moved[mine[taker.name].wanted.digest]}
            return {**self._where, **files, **taker.own_args}

        failed = broadcast.run(join)
        broadcast.report.done(broadcast.here_bytes)
        for name in stream.takers:
            self._received.setdefault(name, {})[number] = takers[name].received_bytes
        return broadcast, failed

    def _reconnect(self, taker: Taker) -> Session:
        """Raises TfdeployError."""

        def connected(session: Session) -> Session:
            session.agent()
            return session

        found = self._fleet.each((taker.host,), connected)[taker.name]
        if isinstance(found, TfdeployError):
            raise found
        return found

    def _look_again(self) -> None:
        """Raises SourceChanged."""
        if self._data.has_changed(self._fleet):
            raise SourceChanged("it changed while it was sent", where=self._data.listing.source)

    def _lender(self, host: str, id_: str, rows: RowSet, total: int) -> Taker:
        """It is told which of its files are moved."""
        known = [*self._complete, *([self._data.origin] if self._data.origin else []), *(self._data.split or Split()).lenders]
        session = self._fleet.each((next(each for each in known if each.name == host),), lambda session: session)[host]
        if isinstance(session, TfdeployError):
            raise session
        args = {**self._where, "id": id_, "root": self._data.listing.root if self._data.origin else ""}
        listed, _ = self._data.listing.rows.only(self._whole.bitmap(rows))
        session.agent().call(BROADCAST_OFFER, args, blob=listed.pack(), timeout_s=LOOK_S)
        return Taker(session, 0, total, lends=True)

    def _commit(self, session: Session) -> None:
        wanted = self._wanted(session.host.name)
        args = {**self._where, "staged": True, "parts": wanted.parts}
        blob = wanted.parts_packed if wanted.parts else b""
        if not session.agent().call(DATA_COMMIT, args, blob=blob, timeout_s=LOOK_S).ok:
            raise HostFailed(f"data {self._name} did not arrive whole", where=session.host.name, next="the same command again")
        self._lock_release.release_host(session)

    # --- what is shown

    def _progress(self, number: int, host: str, arrived: int, lacks: Mapping[str, _Lack]) -> None:
        if host in lacks:
            with self._lock:
                self._arrived.setdefault(host, {})[number] = arrived
                total = sum(self._arrived[host].values())
            lacking = lacks[host].lacking_bytes
            emit_transfer(self._emit, host, self._what, "moving", min(total, lacking), lacking)

    def _tell(self, host: str, state: str, lacking: int, received: int = 0) -> None:
        if not lacking:
            return
        if state != "done":
            emit_transfer(self._emit, host, self._what, state, 0, lacking)
        elif self._data.origin is not None and host == self._data.origin.name:
            emit_transfer(self._emit, host, self._what, state, lacking, lacking, done="copied there")
        else:
            emit_transfer(self._emit, host, self._what, state, received, received)


def _groups(lacks: Mapping[str, _Lack], alone: set[str]) -> list[list[str]]:
    """Hosts by the folder that they share; only the first of a group receives."""
    groups: dict[str, list[str]] = {}
    for name, lack in lacks.items():
        groups.setdefault(lack.folder_id if lack.folder_id and name not in alone else f"only {name}", []).append(name)
    return list(groups.values())


def _split(found: Mapping[str, object]) -> tuple[dict[str, _Lack], dict[str, Outcome]]:
    lacks = {name: each for name, each in found.items() if isinstance(each, _Lack)}
    return lacks, {name: each for name, each in found.items() if isinstance(each, DataSent | TfdeployError)}
