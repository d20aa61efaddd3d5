"""Try once to send a data set: find the missing files of each host, send them, put them in place.

Files that several hosts lack are broadcast. Files that one host lacks are sent to it by rsync. A
host keeps the old data in place until the whole data set has arrived.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

from tfdeploy.agent import bitmap
from tfdeploy.errors import HostFailed, HostUnreachable, TfdeployError
from tfdeploy.model.answers.files import BROADCAST_OFFER, DATA_COMMIT, DATA_COPY, DATA_LACK
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host, hosts_except
from tfdeploy.operations.broadcast import bitmaps
from tfdeploy.operations.broadcast.bitmaps import RowSelection, RowSet
from tfdeploy.operations.broadcast.data_set import LISTING_TIMEOUT_S, DataSet, has_data_set
from tfdeploy.operations.broadcast.delivery import (
    FileBroadcast,
    Outcome,
    ReceivedFiles,
    merge_outcomes,
)
from tfdeploy.operations.broadcast.member_session import MemberSession
from tfdeploy.operations.broadcast.source import SourceChanged
from tfdeploy.operations.broadcast.wanted import WantedFiles, all_wanted_files
from tfdeploy.operations.confine import check_below_workdir
from tfdeploy.operations.copy.push_files import push_files
from tfdeploy.operations.emit import emit_note, emit_transfer
from tfdeploy.operations.outcomes import session_of
from tfdeploy.planning.broadcast.streams import Stream
from tfdeploy.text.typed import Args
from tfdeploy.transport.protocols import Fleet, Session

COPY_S = 24 * 3600.0  # timeout, in seconds, for a host that copies data on its own disk
STREAMS_AT_ONCE = 16


@dataclass
class _MissingRows:
    """The files of a data set that one host lacks.

    `lacking` has their row numbers in the whole data set. Those in `staged` have arrived in the
    folder `staging` already. `present_folder` has the host's present version of the data set, if
    there is one. Hosts with the same `folder_id` store the data set in one shared folder; the id is
    "" if the host does not know it.
    """

    session: Session
    wanted: WantedFiles
    lacking: RowSelection
    lacking_bytes: int
    staging: str
    staged: frozenset[int]
    present_folder: str | None
    folder_id: str


class DataSetSending:
    """One attempt to send a data set to hosts. The attempt fails if the source has changed."""

    def __init__(
        self,
        fleet: Fleet,
        job: str,
        name: str,
        data: DataSet,
        emit: Emit,
        release: Callable[[Session], None],
        *,
        trusts_staged: bool,
    ) -> None:
        """`release` is called with the session of each host that has the whole data set.

        `trusts_staged`: files of the right size and time in a host's staging folder are not sent
        again. It is False if the source changed during an earlier attempt, because a changed file
        may keep its size and time.
        """
        self._trusts_staged = trusts_staged
        self._fleet, self._data = fleet, data
        self._name, self._emit, self._release = name, emit, release
        self._where = {"job": job, "name": name}
        self._what = f"data {name}"
        self._whole = all_wanted_files(data.listing)
        self._complete: list[Host] = []  # hosts that had the data set before it was sent
        self._placed: set[str] = set()
        # {host: {number of the broadcast: arrived bytes, without files that the host already had}}
        self._arrived: dict[str, dict[int, int]] = {}
        # Cache of unpacked bitmaps of missing rows, because many hosts send the same bitmap. A key
        # is the digest of the wanted rows, a blank, and the packed bitmap.
        self._rows: dict[str, RowSelection] = {}
        self._lock = Lock()

    def send_to(self, hosts: tuple[Host, ...]) -> dict[str, Outcome]:
        """Send to all hosts, and return every host's outcome. Raises SourceChanged."""
        outcomes: dict[str, Outcome] = dict(
            _split_answers(self._fleet.each(hosts, self._unlock_if_complete))[1]
        )
        self._complete = [
            host for host in hosts if isinstance(outcomes.get(host.name), ReceivedFiles)
        ]
        waiting = hosts_except(hosts, outcomes)
        # Hosts that seemed to share a folder with another host. If such a host still lacks files
        # after the other host has got the data, the data is sent to it too.
        unshared_hosts: set[str] = set()
        while waiting:
            missing_by_host, failed = _split_answers(
                self._fleet.each(waiting, self._ask_missing_rows)
            )
            outcomes.update(failed)
            groups = _group_by_folder(missing_by_host, unshared_hosts)
            outcomes.update(
                self._send_and_place({group[0]: missing_by_host[group[0]] for group in groups})
            )
            others = [name for group in groups for name in group[1:]]
            unshared_hosts.update(others)
            waiting = tuple(
                host
                for host in hosts
                if host.name in others and not self._add_outcome_if_finished(host, outcomes)
            )
        return {host.name: outcomes[host.name] for host in hosts}

    # --- Ask hosts what they have.

    def _wanted(self, host: str) -> WantedFiles:
        return self._whole if self._data.split is None else self._data.split.wanted_by_host[host]

    def _unlock_if_complete(self, session: Session) -> ReceivedFiles | None:
        """Return None if the host lacks data.

        If the host lacks nothing, release its lock, and return ReceivedFiles.
        """
        if not has_data_set(session, self._where, self._wanted(session.host.name)):
            return None
        self._release(session)
        return ReceivedFiles()

    def _add_outcome_if_finished(self, host: Host, outcomes: dict[str, Outcome]) -> bool:
        """If the host has the data set or has failed, store its outcome and return True.

        A host that shares its folder with another host has the data set once the other host has it.
        """
        state = self._fleet.each((host,), self._unlock_if_complete)[host.name]
        if isinstance(state, ReceivedFiles):
            outcomes[host.name] = ReceivedFiles(sent_names=[self._what])
        elif isinstance(state, TfdeployError):
            outcomes[host.name] = state
        return state is not None

    def _ask_missing_rows(self, session: Session) -> _MissingRows:
        """Ask the host which files it lacks, by their row numbers in the listing."""
        wanted = self._wanted(session.host.name)
        args = {**self._where, "reserve": session.host.reserve}
        answer = session.agent().call(
            DATA_LACK, args, blob=wanted.packed_listing, timeout_s=LISTING_TIMEOUT_S
        )
        name = f"{wanted.digest} {answer.lacking}"

        def unpack(bitmap_text: str) -> Iterator[int]:
            rows = bitmaps.rows_from_bitmap(bitmap_text, wanted.rows, session.host.name)
            return map(wanted.rows_in_whole_set.__getitem__, rows)

        with self._lock:
            if name not in self._rows:
                self._rows[name] = RowSelection(name, array("I", unpack(answer.lacking)))
        return _MissingRows(
            session,
            wanted,
            self._rows[name],
            answer.lacking_bytes,
            check_below_workdir(session, answer.staging),
            frozenset(unpack(answer.staged) if self._trusts_staged else ()),
            answer.present,
            answer.folder_id,
        )

    # --- Sending.

    def _send_and_place(self, missing_by_host: dict[str, _MissingRows]) -> dict[str, Outcome]:
        """Send these hosts what they lack, and put the data in place. Raises SourceChanged."""
        outcomes: dict[str, Outcome] = {**self._copy_on_origin_host(missing_by_host)}
        streams = self._data.plan_streams(
            {name: lack.lacking for name, lack in missing_by_host.items() if name not in outcomes},
            {name: lack.wanted.rows_in_whole_set for name, lack in missing_by_host.items()},
            self._complete,
        )
        for name, lack in missing_by_host.items():
            if lack.lacking_bytes:
                emit_transfer(self._emit, name, self._what, "begin", 0, lack.lacking_bytes)
        try:
            self._run_streams(streams, missing_by_host, outcomes)
        finally:
            for name, lack in missing_by_host.items():
                self._emit_transfer_end(name, lack.lacking_bytes, outcomes.get(name))
        waiting = tuple(
            lack.session.host
            for name, lack in missing_by_host.items()
            if not isinstance(outcomes.get(name), TfdeployError) and name not in self._placed
        )
        for name, error in self._fleet.each(waiting, self._commit_and_unlock).items():
            merge_outcomes(outcomes, {name: error or ReceivedFiles(sent_names=[self._what])})
        return outcomes

    def _copy_on_origin_host(
        self, missing_by_host: Mapping[str, _MissingRows]
    ) -> dict[str, TfdeployError]:
        """If the data comes from one of these hosts, make this host copy the data on its own disk.

        Afterwards this host has all files. Returns {host: error} if the copy fails, else {}.
        """
        lack = missing_by_host.get(self._data.origin.name) if self._data.origin else None
        if lack is None or not lack.lacking.rows:
            return {}
        try:
            lack.session.agent().call(
                DATA_COPY, {**self._where, "root": self._data.listing.root}, timeout_s=COPY_S
            )
        except TfdeployError as error:
            return {lack.session.host.name: error}
        lack.lacking = RowSelection("", ())
        return {}

    def _run_streams(
        self,
        streams: list[Stream],
        missing_by_host: Mapping[str, _MissingRows],
        results: dict[str, Outcome],
    ) -> None:
        """Run the streams of a data set, up to STREAMS_AT_ONCE at once.

        The outcomes are added to `results`. Raises SourceChanged.
        """
        # True if each host gets only one stream: the host has everything after this stream.
        single = len(streams) == 1 or self._data.by_rsync
        with ThreadPoolExecutor(STREAMS_AT_ONCE) as pool:
            sendings = [
                pool.submit(
                    self._send_by_rsync
                    if self._data.is_sent_by_rsync(stream)
                    else self._run_broadcast,
                    number,
                    stream,
                    missing_by_host,
                    single,
                )
                for number, stream in enumerate(streams)
            ]
        for stream, sending in zip(streams, sendings, strict=True):
            try:
                outcomes = sending.result()
            except SourceChanged:
                raise
            except TfdeployError as error:
                outcomes = {name: self._make_origin_error(error, name) for name in stream.receivers}
            merge_outcomes(results, {name: outcomes[name] for name in stream.receivers})

    def _make_origin_error(self, error: TfdeployError, host: str) -> TfdeployError:
        """Return the error for `host`, which got no data because the data's source host failed."""
        if self._data.origin is None:
            raise error
        kind = HostUnreachable if isinstance(error, HostUnreachable) else HostFailed
        return kind(
            f"the data comes from {self._data.origin.name}, which failed: {error.what}",
            where=host,
            next=error.next,
        )

    def _send_by_rsync(
        self,
        stream_number: int,
        stream: Stream,
        missing_by_host: Mapping[str, _MissingRows],
        is_only_stream: bool,
    ) -> dict[str, Outcome]:
        """Send the files of a stream to its only host by rsync, and return the host's outcome.

        The arguments and errors are those of `_run_broadcast`.
        """
        (host,) = stream.receivers
        lack, rows = missing_by_host[host], self._data.listing.rows
        sent_rows = [row for row in stream.rows if row not in lack.staged]
        staged_bytes = sum(rows.sizes[row] for row in stream.rows if row in lack.staged)

        def report_progress(sent: int) -> None:
            self._emit_progress(stream_number, host, staged_bytes + sent, missing_by_host)

        def send(session: Session) -> int:
            return push_files(
                session,
                self._data.listing.root,
                [rows.path(row) for row in sent_rows],
                lack.staging,
                sum(rows.sizes[row] for row in sent_rows),
                self._emit,
                report_progress,
                in_place=True,
                older_folder=lack.present_folder,
            )

        sent_bytes = 0
        try:
            if sent_rows:
                try:
                    sent_bytes = send(lack.session)
                except HostUnreachable:
                    # The connection broke. A second rsync resumes where the first rsync stopped.
                    sent_bytes = send(session_of(self._fleet, lack.session.host))
            self._check_unchanged()
            if is_only_stream:
                self._commit_and_unlock(session_of(self._fleet, lack.session.host))
        except SourceChanged:
            raise
        except TfdeployError as error:
            return {host: error}
        return {host: ReceivedFiles(sent_bytes, [self._what], "")}

    def _run_broadcast(
        self,
        stream_number: int,
        stream: Stream,
        missing_by_host: Mapping[str, _MissingRows],
        is_only_stream: bool,
    ) -> dict[str, Outcome]:
        """Run one broadcast of some files, and return the outcomes of its hosts.

        `is_only_stream`: the hosts get no other stream, so each host puts the data in place as soon
        as it has received everything. Raises SourceChanged.
        """
        rows = RowSet(stream.rows, len(self._data.listing.rows))
        receivers = {name: missing_by_host[name] for name in stream.receivers}
        # Hosts that should have the same files get the same bitmap, which is packed only once.
        wanted = {lack.wanted.digest: lack.wanted for lack in receivers.values()}
        moved = {digest: bitmap.pack(each.bitmap(rows)) for digest, each in wanted.items()}

        def join(member: MemberSession) -> Args:
            if member.is_lender:
                return self._where
            return {**self._where, "moved": moved[receivers[member.name].wanted.digest]}

        def put_in_place(member: MemberSession) -> None:
            if is_only_stream and not member.is_lender:
                self._commit_and_unlock(member.session)

        file_broadcast = FileBroadcast(
            self._data.listing.rows,
            stream.rows,
            self._what,
            self._emit,
            join,
            root=self._data.listing.root,
            source_host=self._data.origin.name if self._data.origin else None,
            put_in_place=put_in_place,
            check_source=self._check_unchanged,
            reconnect=self._reconnect,
        )
        members = self._make_members(stream, receivers, rows, file_broadcast)
        broadcast, outcomes = file_broadcast.run(
            members,
            lambda host, arrived, _: self._emit_progress(
                stream_number, host, arrived, missing_by_host
            ),
            event_name=self._what if is_only_stream else "",
        )
        broadcast.report.emit_end(broadcast.control_sent_bytes)
        return outcomes

    def _make_members(
        self,
        stream: Stream,
        missing_by_host: Mapping[str, _MissingRows],
        rows: RowSet,
        file_broadcast: FileBroadcast,
    ) -> dict[str, MemberSession]:
        """Return the members of the broadcast by host name.

        If a lender sends the files (a host that has all of them and receives none), it is the first
        member, so that hosts near it receive first.
        """
        total, sizes = file_broadcast.total_bytes, self._data.listing.rows.sizes
        members: dict[str, MemberSession] = {}
        if stream.lender is not None:
            try:
                lender = self._connect_lender(stream.lender, file_broadcast.id, rows, total)
                members[stream.lender] = lender
            except TfdeployError as error:
                if self._data.origin is not None:
                    raise
                text = f"{stream.lender} cannot send its files to other hosts: {error.what}"
                emit_note(self._emit, text, host=stream.lender)
        # The total size is computed only once for all hosts that lack the same files.
        lacking_bytes = {
            each: sum(sizes[row] for row in each.rows if row in rows)
            for each in {lack.lacking for lack in missing_by_host.values()}
        }
        for name, lack in missing_by_host.items():
            members[name] = MemberSession(lack.session, lacking_bytes[lack.lacking], total)
        return members

    def _reconnect(self, member: MemberSession) -> Session:
        """Return a new session of the member. Raises TfdeployError."""
        session = session_of(self._fleet, member.host)
        session.agent()
        return session

    def _check_unchanged(self) -> None:
        """Raise SourceChanged if the source has changed."""
        if self._data.has_changed(self._fleet):
            raise SourceChanged("data changed while it was sent", where=self._data.listing.source)

    def _connect_lender(
        self, host: str, broadcast_id: str, rows: RowSet, total_bytes: int
    ) -> MemberSession:
        """Tell a host which of its files it must send to others. Return the host as a member."""
        origin, split = self._data.origin, self._data.split
        candidates = [
            *self._complete,
            *(split.lenders if split else ()),
            *([origin] if origin else ()),
        ]
        session = session_of(self._fleet, next(each for each in candidates if each.name == host))
        root = self._data.listing.root if origin else ""
        args = {**self._where, "id": broadcast_id, "root": root}
        listed, _ = self._data.listing.rows.select_files(self._whole.bitmap(rows))
        session.agent().call(BROADCAST_OFFER, args, blob=listed.pack(), timeout_s=LISTING_TIMEOUT_S)
        return MemberSession(session, 0, total_bytes, is_lender=True)

    def _commit_and_unlock(self, session: Session) -> None:
        """Let the host put the received data in place, and release the lock there."""
        wanted = self._wanted(session.host.name)
        args = {**self._where, "parts": wanted.part_count}
        blob = wanted.packed_part_numbers if wanted.part_count else b""
        if not session.agent().call(DATA_COMMIT, args, blob=blob, timeout_s=LISTING_TIMEOUT_S).ok:
            raise HostFailed(
                f"data {self._name} is incomplete after the transfer",
                where=session.host.name,
                next="run the same command again",
            )
        self._placed.add(session.host.name)
        self._release(session)

    # --- Progress events.

    def _emit_progress(
        self,
        stream_number: int,
        host: str,
        arrived_bytes: int,
        missing_by_host: Mapping[str, _MissingRows],
    ) -> None:
        if host in missing_by_host:
            with self._lock:
                self._arrived.setdefault(host, {})[stream_number] = arrived_bytes
                total = sum(self._arrived[host].values())
            lacking = missing_by_host[host].lacking_bytes
            emit_transfer(self._emit, host, self._what, "moving", min(total, lacking), lacking)

    def _emit_transfer_end(self, host: str, lacking_bytes: int, outcome: Outcome | None) -> None:
        if not lacking_bytes:
            return
        if isinstance(outcome, TfdeployError):
            emit_transfer(self._emit, host, self._what, "failed", 0, lacking_bytes)
        elif self._data.origin is not None and host == self._data.origin.name:
            how = "copied there"
            emit_transfer(
                self._emit, host, self._what, "done", lacking_bytes, lacking_bytes, end_word=how
            )
        else:
            # Holes of sparse files, and files that the host had already, do not count as received.
            received = outcome.received_bytes if outcome else 0
            emit_transfer(self._emit, host, self._what, "done", received, received)


def _group_by_folder(
    missing_by_host: Mapping[str, _MissingRows], unshared_hosts: set[str]
) -> list[list[str]]:
    """Return the hosts in groups that share a folder. Only the first host of a group gets data."""
    groups: dict[str, list[str]] = {}
    for name, lack in missing_by_host.items():
        shared = lack.folder_id if name not in unshared_hosts else ""
        groups.setdefault(shared or f"only {name}", []).append(name)
    return list(groups.values())


def _split_answers(
    answers: Mapping[str, object],
) -> tuple[dict[str, _MissingRows], dict[str, Outcome]]:
    missing_by_host = {
        name: each for name, each in answers.items() if isinstance(each, _MissingRows)
    }
    return missing_by_host, {
        name: each
        for name, each in answers.items()
        if isinstance(each, ReceivedFiles | TfdeployError)
    }
