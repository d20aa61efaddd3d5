"""Predict what a sync would send to each host, and which hosts would pass data on to which others.

This is for `sync --dry-run`. A forecast locks nothing, and sends the hosts nothing except
tfdeploy's agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfdeploy.model.answers.files import DATA_HELD, RELEASE_MISSING
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Hosts, Inventory
from tfdeploy.model.job import Job
from tfdeploy.model.output.rows import ExpectedRow
from tfdeploy.operations.broadcast import bitmaps
from tfdeploy.operations.broadcast.bitmaps import RowSelection
from tfdeploy.operations.broadcast.data_set import LISTING_TIMEOUT_S, DataSet, has_data_set
from tfdeploy.operations.broadcast.member_session import MemberSession
from tfdeploy.operations.confine import check_requested_paths
from tfdeploy.operations.copy.code_files import LEAST_BROADCAST_BYTES
from tfdeploy.operations.emit import emit_warning
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.sending.send_code import CALL_S, has_release
from tfdeploy.operations.sending.send_data import data_sets_to_send
from tfdeploy.operations.sending.shipment import Shipment
from tfdeploy.operations.sending.whole_shipment import read_whole_shipment
from tfdeploy.planning.broadcast.first_plan import first_plan
from tfdeploy.transport.protocols import Errors, Fleet, Outcomes, Session

# The planner of broadcasts uses only hosts that listen on a port. No host listens yet, so the
# forecast gives the planner this number as the port of each host.
A_PORT = 1


@dataclass
class ExpectedTransfer:
    """The data that one host would receive.

    `bytes_by_item` is {what would be sent, such as "code": number of bytes}. `source` is the host
    that would send to this host in a broadcast; in the last one, if there are several. "" or None
    stands for the control machine.
    """

    release: str
    bytes_by_item: dict[str, int] = field(default_factory=dict)
    source: str | None = None
    seconds: None = None

    @property
    def bytes_sent(self) -> int:
        return sum(self.bytes_by_item.values())


def forecast_sync(
    fleet: Fleet,
    hosts: Hosts,
    job: Job,
    cache: Path | None,
    emit: Emit,
    inventory: Inventory,
    *,
    allow_secrets: bool,
) -> tuple[Outcomes[ExpectedTransfer], list[ExpectedRow]]:
    """Return what each host would receive (or the host's error), and the broadcasts of the sync.

    `allow_secrets`: accept private keys in the code. Raises an error if the code or data cannot be
    read, or if no plan can be made.
    """
    shipment = read_whole_shipment(fleet, job, cache, inventory, allow_secrets=allow_secrets)
    for warning in shipment.warnings:
        emit_warning(emit, warning)
    estimate = _Forecast(fleet, shipment.job)
    estimate.add_code(hosts, shipment)
    for name, data in data_sets_to_send(shipment).items():
        estimate.add_data(name, data)
    outcomes: Outcomes[ExpectedTransfer] = {**estimate.expected, **estimate.errors}
    return {host.name: outcomes[host.name] for host in hosts}, estimate.broadcasts


@dataclass(frozen=True)
class _MissingRows:
    """The files of a data set that a host lacks.

    Files are given by their row numbers in the listing of the whole data set. `rows`: the missing
    files. `wanted_rows`: all files that the host should have. `folder` identifies the folder on
    disk: if two hosts have the same `folder`, they share the stored data set, for example by NFS.
    """

    rows: RowSelection
    wanted_rows: Sequence[int]
    folder: str


class _Forecast:
    """Collects what hosts would receive, and the errors of hosts that cannot be asked."""

    def __init__(self, fleet: Fleet, job: str) -> None:
        self._fleet, self._job = fleet, job
        self._sessions: dict[str, Session] = {}
        self.expected: dict[str, ExpectedTransfer] = {}
        self.errors: Errors = {}
        self.broadcasts: list[ExpectedRow] = []

    def add_code(self, hosts: Hosts, shipment: Shipment) -> None:
        """Add to the forecast the code that hosts would receive.

        If several hosts lack much code, also add the broadcast that would send it to them.
        """

        def ask(session: Session) -> tuple[Session, ExpectedTransfer]:
            return session, _forecast_code(session, shipment)

        outcomes, self.errors = split_outcomes(self._fleet.each(hosts, ask))
        for name, (session, expected) in outcomes.items():
            self._sessions[name], self.expected[name] = session, expected
        sent = {name: each.bytes_by_item.get("code", 0) for name, each in self.expected.items()}
        large = {name: count for name, count in sent.items() if count >= LEAST_BROADCAST_BYTES}
        if len(large) > 1:
            self._add_broadcast("code", large, max(large.values()), "")

    def add_data(self, name: str, data: DataSet) -> None:
        """Add the files of a data set that hosts would receive.

        If several hosts share a folder, only one of them receives the data.
        """
        subject, sizes = f"data {name}", data.listing.rows.sizes
        hosts = tuple(
            self._sessions[host].host
            for host in self.expected
            if data.expected_on(host) is not None
        )
        outcomes, failed = split_outcomes(
            self._fleet.each(
                hosts, lambda session: _find_missing_rows(session, self._job, name, data)
            )
        )
        self.errors.update(failed)
        for host in failed:
            del self.expected[host]
        by_folder: dict[str, tuple[str, _MissingRows]] = {}
        for host, missing in outcomes.items():
            if missing is not None:
                by_folder.setdefault(missing.folder, (host, missing))
        missing_by_host = dict(by_folder.values())
        # If the data comes from one of these hosts, this host receives nothing: it copies its own
        # files.
        origin = data.origin.name if data.origin else None
        rows = {host: missing.rows for host, missing in missing_by_host.items() if host != origin}
        for host, each in rows.items():
            self.expected[host].bytes_by_item[subject] = sum(sizes[row] for row in each.rows)
        if data.by_rsync:
            return
        complete = [host for host in hosts if host.name in outcomes and outcomes[host.name] is None]
        for stream in data.plan_streams(
            rows, {host: missing.wanted_rows for host, missing in missing_by_host.items()}, complete
        ):
            stream_rows = set(stream.rows)
            lacking = {
                host: sum(sizes[row] for row in rows[host].rows if row in stream_rows)
                for host in stream.receivers
            }
            self._add_broadcast(
                subject, lacking, sum(sizes[row] for row in stream_rows), stream.lender or ""
            )

    def _add_broadcast(
        self, subject: str, lacking_bytes_by_host: Mapping[str, int], total_bytes: int, source: str
    ) -> None:
        """Add a broadcast that a sync would run.

        `lacking_bytes_by_host`: {host: number of bytes that it lacks}. `total_bytes`: the size of
        all files of the broadcast. `source`: the host from which the files come; "" stands for this
        machine.
        """
        counts = {**({source: 0} if source in self._sessions else {}), **lacking_bytes_by_host}
        members = [
            MemberSession(self._sessions[name], count, total_bytes, port=A_PORT)
            for name, count in counts.items()
        ]
        plan = first_plan([member.to_planner_member() for member in members], total_bytes)
        feeds = [(feed.parent or source, feed.child, feed.stripe) for feed in plan.feeds]
        for parent, child, _ in feeds:
            self.expected[child].source = parent
        self.broadcasts.append(
            {
                "what": subject,
                "hosts": len({child for _, child, _ in feeds}),
                "bytes": total_bytes,
                "stripes": plan.stripes,
                "feeds": [
                    {"from": parent or "control", "to": child, "stripe": stripe}
                    for parent, child, stripe in feeds
                ],
            }
        )


def _forecast_code(session: Session, shipment: Shipment) -> ExpectedTransfer:
    expected, code = ExpectedTransfer(shipment.manifest.release), shipment.code
    if not has_release(session, shipment):
        args = {"job": shipment.job, "release": expected.release}
        answer = session.agent().call(
            RELEASE_MISSING, args, blob=code.packed_manifest, timeout_s=CALL_S
        )
        expected.bytes_by_item["code"] = code.size_bytes(
            check_requested_paths(code.paths, answer.missing, session.host.name)
        )
    return expected


def _find_missing_rows(session: Session, job: str, name: str, data: DataSet) -> _MissingRows | None:
    """Return the files of the data set that the host lacks; None if it has all files."""
    host, data_args = session.host.name, {"job": job, "name": name}
    wanted_data = data.expected_on(host)
    assert wanted_data is not None
    if has_data_set(session, data_args, wanted_data):
        return None
    answer = session.agent().call(
        DATA_HELD, data_args, blob=wanted_data.packed_listing, timeout_s=LISTING_TIMEOUT_S
    )
    held_rows = {
        row
        for _, packed in answer.held
        for row in bitmaps.rows_from_bitmap(packed, wanted_data.rows, host)
    }
    lacking = [
        row
        for row in range(len(wanted_data.rows))
        if wanted_data.rows.has_own_content(row) and row not in held_rows
    ]
    rows = RowSelection(host, [wanted_data.rows_in_whole_set[row] for row in lacking])
    return _MissingRows(rows, wanted_data.rows_in_whole_set, answer.folder_id or f"only {host}")
