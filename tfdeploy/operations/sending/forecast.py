"""Predict what a sync would send to each host, and which host sends to which (`sync --dry-run`).

Locks nothing, and sends nothing but the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.broadcast import DATA_HELD
from tfdeploy.model.answers.files import RELEASE_MISSING
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job
from tfdeploy.model.output.rows import ExpectedRow
from tfdeploy.operations.broadcast import bitmaps
from tfdeploy.operations.broadcast.bitmaps import NamedRows
from tfdeploy.operations.broadcast.data_set import LISTING_TIMEOUT_S, DataSet, has_data_set
from tfdeploy.operations.broadcast.member_session import MemberSession
from tfdeploy.operations.confine import check_requested_paths
from tfdeploy.operations.copy.code_files import LEAST_BROADCAST_BYTES
from tfdeploy.operations.emit import emit_note
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.sending.send_code import CALL_S, is_present
from tfdeploy.operations.sending.send_data import broadcast_sets
from tfdeploy.operations.sending.shipment import Shipment
from tfdeploy.operations.sending.whole_shipment import whole_shipment
from tfdeploy.planning.broadcast.first_plan import first_plan
from tfdeploy.transport.protocols import Fleet, Session

A_PORT = 1  # placeholder port: the planner needs members that listen, but no host listens yet


@dataclass
class Expected:
    """The data that one host would receive.

    `sent` is {what, such as "code": bytes}. `source` is the host that would send the last data
    ("" and None: this machine).
    """

    release: str
    sent: dict[str, int] = field(default_factory=dict)
    source: str | None = None
    seconds: None = None

    @property
    def bytes_sent(self) -> int:
        return sum(self.sent.values())


def forecast(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    job: Job,
    cache: Path | None,
    emit: Emit,
    inventory: Inventory,
    *,
    allow_secrets: bool = False,
) -> tuple[dict[str, Expected | TfdeployError], list[ExpectedRow]]:
    """Return what each host would receive, or its error, and the broadcasts.

    `allow_secrets`: accept private keys in the code. Raises the errors of reading and planning.
    """
    shipment = whole_shipment(fleet, job, cache, inventory, allow_secrets=allow_secrets)
    for warning in shipment.warnings:
        emit_note(emit, warning, level="warning")
    estimate = _Forecast(fleet, shipment.job)
    estimate.add_code(hosts, shipment)
    for name, data in broadcast_sets(shipment).items():
        estimate.add_data(name, data)
    for name in sorted(shipment.by_rsync):
        estimate.add_data(name, DataSet(shipment.data[name]), by_rsync=True)
    outcomes: dict[str, Expected | TfdeployError] = {**estimate.expected, **estimate.errors}
    return {host.name: outcomes[host.name] for host in hosts}, estimate.broadcasts


@dataclass(frozen=True)
class _MissingRows:
    """The files of a data set that a host lacks, as row numbers of the whole data set.

    `wanting` are all rows that the host should have. Hosts with the same `folder` store the data
    set in one shared folder.
    """

    rows: NamedRows
    wanting: Sequence[int]
    folder: str


class _Forecast:
    """Collects what hosts would receive, and the errors of hosts that cannot be asked."""

    def __init__(self, fleet: Fleet, job: str) -> None:
        self._fleet, self._job = fleet, job
        self._sessions: dict[str, Session] = {}
        self.expected: dict[str, Expected] = {}
        self.errors: dict[str, TfdeployError] = {}
        self.broadcasts: list[ExpectedRow] = []

    def add_code(self, hosts: tuple[Host, ...], shipment: Shipment) -> None:
        """Add what hosts would receive of the code, and a broadcast if that is large."""

        def ask(session: Session) -> tuple[Session, Expected]:
            return session, _expected_code(session, shipment)

        outcomes, self.errors = split_outcomes(self._fleet.each(hosts, ask))
        for name, (session, expected) in outcomes.items():
            self._sessions[name], self.expected[name] = session, expected
        sent = {name: each.sent.get("code", 0) for name, each in self.expected.items()}
        large = {name: count for name, count in sent.items() if count >= LEAST_BROADCAST_BYTES}
        if len(large) > 1:
            self._add_broadcast("code", large, max(large.values()), "")

    def add_data(self, name: str, data: DataSet, *, by_rsync: bool = False) -> None:
        """Add what hosts would receive of a data set.

        Of several hosts that share a folder, only one receives the data.
        """
        what, sizes = f"data {name}", data.listing.rows.sizes
        hosts = tuple(
            self._sessions[host].host for host in self.expected if data.wanted(host) is not None
        )
        outcomes, failed = split_outcomes(
            self._fleet.each(
                hosts, lambda session: _ask_missing_rows(session, self._job, name, data)
            )
        )
        self.errors.update(failed)
        for host in failed:
            del self.expected[host]
        by_folder: dict[str, tuple[str, _MissingRows]] = {}
        for host, lack in outcomes.items():
            if lack is not None:
                by_folder.setdefault(lack.folder, (host, lack))
        lacks = dict(by_folder.values())
        # The host that the data comes from receives nothing, because it copies its own files.
        origin = data.origin.name if data.origin else None
        rows = {host: lack.rows for host, lack in lacks.items() if host != origin}
        for host, each in rows.items():
            self.expected[host].sent[what] = sum(sizes[row] for row in each.rows)
        if by_rsync:
            return
        complete = [host for host in hosts if host.name in outcomes and outcomes[host.name] is None]
        for stream in data.streams(
            rows, {host: lack.wanting for host, lack in lacks.items()}, complete
        ):
            moved = set(stream.rows)
            lacking = {
                host: sum(sizes[row] for row in rows[host].rows if row in moved)
                for host in stream.receivers
            }
            self._add_broadcast(
                what, lacking, sum(sizes[row] for row in moved), stream.lender or ""
            )

    def _add_broadcast(
        self, what: str, lacking: Mapping[str, int], total: int, lender: str
    ) -> None:
        """Add a broadcast that a sync would run.

        `lacking`: the missing bytes of each host. `total`: all bytes of the broadcast. `lender`:
        the host that sends; "" is this machine.
        """
        counts = {**({lender: 0} if lender in self._sessions else {}), **lacking}
        members = [
            MemberSession(self._sessions[name], count, total, port=A_PORT)
            for name, count in counts.items()
        ]
        plan = first_plan([member.as_planned() for member in members], total)
        feeds = [(feed.parent or lender, feed.child, feed.stripe) for feed in plan.feeds]
        for parent, child, _ in feeds:
            self.expected[child].source = parent
        self.broadcasts.append(
            {
                "what": what,
                "hosts": len({child for _, child, _ in feeds}),
                "bytes": total,
                "stripes": plan.stripes,
                "feeds": [
                    {"from": parent or "control", "to": child, "stripe": stripe}
                    for parent, child, stripe in feeds
                ],
            }
        )


def _expected_code(session: Session, shipment: Shipment) -> Expected:
    expected, code = Expected(shipment.manifest.release), shipment.code
    if not is_present(session, shipment):
        args = {"job": shipment.job, "release": expected.release}
        answer = session.agent().call(RELEASE_MISSING, args, blob=code.manifest, timeout_s=CALL_S)
        expected.sent["code"] = code.size_bytes(
            check_requested_paths(code.paths, answer.missing, session.host.name)
        )
    return expected


def _ask_missing_rows(session: Session, job: str, name: str, data: DataSet) -> _MissingRows | None:
    """Return what the host lacks of the data set; None if it has everything."""
    host, where = session.host.name, {"job": job, "name": name}
    wanted = data.wanted(host)
    assert wanted is not None
    if has_data_set(session, where, wanted):
        return None
    answer = session.agent().call(DATA_HELD, where, blob=wanted.packed, timeout_s=LISTING_TIMEOUT_S)
    held = {row for _, packed in answer.held for row in bitmaps.rows_of(packed, wanted.rows, host)}
    lacking = [
        row for row in range(len(wanted.rows)) if wanted.rows.is_content(row) and row not in held
    ]
    rows = NamedRows(host, [wanted.whole_rows[row] for row in lacking])
    return _MissingRows(rows, wanted.whole_rows, answer.folder_id or f"only {host}")
