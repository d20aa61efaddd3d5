"""`tfdeploy sync --dry-run`: what a sync would send to each host, and who would feed whom.

Locks nothing, and sends nothing but the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.broadcast import DATA_HELD
from tfdeploy.model.answers.files import RELEASE_MISSING
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job
from tfdeploy.operations.broadcast import bitmaps
from tfdeploy.operations.broadcast.bitmaps import NamedRows
from tfdeploy.operations.broadcast.data_set import LOOK_S, DataSet, is_there
from tfdeploy.operations.broadcast.release_files import LEAST_BYTES
from tfdeploy.operations.broadcast.taker import Taker
from tfdeploy.operations.confine import only_of
from tfdeploy.operations.emit import note
from tfdeploy.operations.send_code import CALL_S, is_present
from tfdeploy.operations.shipment import Shipment, whole_shipment
from tfdeploy.planning.broadcast.feeds import Feed
from tfdeploy.planning.broadcast.first_plan import first_plan
from tfdeploy.planning.broadcast.streams import Stream
from tfdeploy.transport.protocols import Fleet, Session

A_PORT = 1  # of a host that would listen


@dataclass
class Expected:
    """What one host would be sent: `what` -> bytes, and from whom it would have the last of them ("" and None: this machine)."""

    release: str
    sent: dict[str, int] = field(default_factory=dict)
    source: str | None = None


@dataclass(frozen=True)
class ExpectedFeeds:
    """One broadcast. `total_bytes`: to a host that has nothing of it."""

    what: str
    total_bytes: int
    stripes: int
    feeds: tuple[Feed, ...]


@dataclass(frozen=True)
class Forecast:
    hosts: dict[str, Expected | TfdeployError]
    broadcasts: tuple[ExpectedFeeds, ...]


def forecast(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    job: Job,
    cache: Path | None,
    emit: Emit,
    inventory: Inventory,
    *,
    allow_secrets: bool = False,
) -> Forecast:
    """`allow_secrets`: see read_shipment. Raises what reading and planning raise."""
    shipment = whole_shipment(fleet, job, cache, inventory, allow_secrets=allow_secrets)
    for warning in shipment.warnings:
        note(emit, warning, level="warning")
    found = fleet.each(hosts, lambda session: _code(session, shipment))
    sessions = fleet.each(hosts, lambda session: session)
    live = {name: each for name, each in sessions.items() if not isinstance(each, TfdeployError)}
    expected = {name: each for name, each in found.items() if isinstance(each, Expected)}
    broadcasts = list(_code_feeds(expected, live))
    for name, data in shipment.broadcasts().items():
        told = _DataForecast(fleet, shipment.job, name, data, live)
        broadcasts += told.add_to(found, tuple(host for host in hosts if host.name in expected))
    for name in sorted(shipment.by_rsync):
        _DataForecast(fleet, shipment.job, name, DataSet(shipment.data[name]), live).add_to(found, hosts)
    return Forecast({host.name: found[host.name] for host in hosts}, tuple(broadcasts))


def _code(session: Session, shipment: Shipment) -> Expected:
    expected, code = Expected(shipment.manifest.release), shipment.code
    if not is_present(session, shipment):
        args = {"job": shipment.job, "release": expected.release}
        found = session.agent().call(RELEASE_MISSING, args, blob=code.manifest, timeout_s=CALL_S)
        expected.sent["code"] = code.size_bytes(only_of(code.paths, found.missing, session.host.name))
    return expected


def _code_feeds(expected: Mapping[str, Expected], sessions: Mapping[str, Session]) -> list[ExpectedFeeds]:
    """Only large code goes from host to host."""
    lacking = {name: each.sent["code"] for name, each in expected.items() if each.sent.get("code", 0) >= LEAST_BYTES}
    if len(lacking) < 2:
        return []
    found = _feeds("code", lacking, max(lacking.values()), None, sessions)
    for feed in found.feeds:
        expected[feed.child].source = feed.parent
    return [found]


@dataclass(frozen=True)
class _Lack:
    """`rows`: of the whole data set, that a host lacks; `wanting`: those that it is to have."""

    rows: NamedRows
    wanting: Sequence[int]
    folder: str


@dataclass(frozen=True)
class _DataForecast:
    fleet: Fleet
    job: str
    name: str
    data: DataSet
    sessions: Mapping[str, Session]

    def add_to(self, found: dict[str, Expected | TfdeployError], hosts: tuple[Host, ...]) -> list[ExpectedFeeds]:
        """To what each of `hosts` would be sent. A host that cannot say what it has is an error from then on."""
        live = (host for host in hosts if isinstance(found[host.name], Expected))
        wanting = tuple(host for host in live if self.data.wanted(host.name) is not None)
        lacks: dict[str, _Lack] = {}
        complete: list[Host] = []
        folders: set[str] = set()
        for name, lack in self.fleet.each(wanting, self._lack).items():
            if isinstance(lack, TfdeployError):
                found[name] = lack
            elif lack is None:
                complete.append(self.sessions[name].host)
            elif lack.folder not in folders:  # else another host that shares the folder receives it
                lacks[name] = lack
                folders.add(lack.folder)
        sizes, origin = self.data.listing.rows.sizes, self.data.origin.name if self.data.origin else None
        for name, lack in lacks.items():
            expected = found[name]
            if isinstance(expected, Expected) and name != origin:  # the host that has it copies it
                expected.sent[f"data {self.name}"] = sum(sizes[row] for row in lack.rows.rows)
        rows = {name: lack.rows for name, lack in lacks.items() if name != origin}
        return self._feeds(self.data.streams(rows, {name: lack.wanting for name, lack in lacks.items()}, complete), rows, found)

    def _lack(self, session: Session) -> _Lack | None:
        """None: it has all."""
        wanted, where = self.data.wanted(session.host.name), {"job": self.job, "name": self.name}
        assert wanted is not None
        if is_there(session, where, wanted):
            return None
        said = session.agent().call(DATA_HELD, where, blob=wanted.packed, timeout_s=LOOK_S)
        held: set[int] = set()
        for _, packed in said.held:
            held.update(bitmaps.rows_of(packed, wanted.rows, session.host.name))
        lacking = [row for row in range(len(wanted.rows)) if wanted.rows.is_content(row) and row not in held]
        rows = NamedRows(session.host.name, [wanted.places[row] for row in lacking])
        return _Lack(rows, wanted.places, said.folder_id or f"only {session.host.name}")

    def _feeds(
        self, streams: list[Stream], rows: Mapping[str, NamedRows], found: Mapping[str, Expected | TfdeployError]
    ) -> list[ExpectedFeeds]:
        sizes, told = self.data.listing.rows.sizes, []
        for stream in streams:
            moved = set(stream.rows)
            lacking = {name: sum(sizes[row] for row in rows[name].rows if row in moved) for name in stream.takers}
            feeds = _feeds(f"data {self.name}", lacking, sum(sizes[row] for row in moved), stream.lender, self.sessions)
            told.append(feeds)
            for feed in feeds.feeds:
                expected = found[feed.child]
                if isinstance(expected, Expected):
                    expected.source = feed.parent
        return told


def _feeds(
    what: str, lacking: Mapping[str, int], total: int, lender: str | None, sessions: Mapping[str, Session]
) -> ExpectedFeeds:
    """`lacking`: bytes by host."""
    members = [Taker(sessions[name], count, total, port=A_PORT).member() for name, count in lacking.items()]
    if lender is not None and lender in sessions:
        members.insert(0, Taker(sessions[lender], 0, total, port=A_PORT).member())
    plan = first_plan(members, total)
    feeds = tuple(replace(feed, parent=feed.parent or lender or "") for feed in plan.feeds)
    return ExpectedFeeds(what, total, plan.stripes, feeds)
