"""Hold the state of one member of a broadcast: session, progress, and who sends to the member."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tfdeploy.agent.pieces import PIECE_BYTES
from tfdeploy.errors import BadAnswer, TfdeployError
from tfdeploy.machine.threads import start_thread
from tfdeploy.model.answers.files import (
    BROADCAST_FEEDS,
    BROADCAST_JOIN,
    BROADCAST_LEND,
    BROADCAST_ROOTS,
    BroadcastMemberReport,
    ReceivedBytes,
)
from tfdeploy.model.inventory import Host
from tfdeploy.operations.broadcast.feeder import PieceFeeder
from tfdeploy.operations.broadcast.intake_log import ReceiveRateLog
from tfdeploy.planning.broadcast.feeds import Feed, Member, StripeProgress
from tfdeploy.text.typed import Args
from tfdeploy.transport.protocols import AgentChannel, Session, Stream

CALL_S = 60.0  # timeout of one call
SILENT_S = 2.0  # a member that has received nothing for longer than this counts as silent
# A member sends a progress report twice a second. It also reports each wrong piece, and each host
# that should send to it but does not. The member fails if it sends more than REPORT_BURST reports
# plus MAX_REPORTS_PER_S for each second since it joined.
MAX_REPORTS_PER_S = 20
REPORT_BURST = 1000
STUCK_S = 3.0  # an incomplete member that has received nothing for longer than this is stuck
# {IP version: number of bits}. Hosts whose addresses begin with the same bits count as one site:
# the planner assumes that they are near each other.
_SITE_BITS = {4: 24, 6: 64}


@dataclass
class MemberSession:
    """One member of a broadcast.

    `total_bytes` is the size of all files of the broadcast. `lacking_bytes` is the size of those
    files that the member lacks. A member lacks a file if it has none with the same size and time.
    """

    session: Session
    lacking_bytes: int
    total_bytes: int
    join_args: Args = field(default_factory=dict)  # further arguments of the verb broadcast.join
    is_lender: bool = False  # True if the member has all files and only sends them to others
    port: int | None = None
    have_bytes: int = 0
    # True if files of the member have the right size and time but other content.
    content_differs: bool = False
    error: TfdeployError | None = None
    accusers: set[str] = field(default_factory=set)  # hosts that this member sent a wrong piece
    # All hosts that were ever told to send to this member. If the member reports a failure of any
    # other host, the report is ignored.
    parents: set[str] = field(default_factory=set)
    feeder: PieceFeeder | None = None
    # The stripes (shares of all pieces) that this machine sends to the member.
    stripes_from_control: frozenset[int] = frozenset()
    reconnects: int = 0
    why_lost: TfdeployError | None = None  # the error that ended the last connection
    _received_before: int = 0  # bytes received over earlier connections
    _feeds: tuple[int, tuple[Feed, ...]] | None = None
    _roots: int = 0  # number of root hashes that were sent to the member
    _received: ReceiveRateLog = field(default_factory=ReceiveRateLog)
    # Size in bytes of each stripe (a share of all pieces). Empty if there is only one stripe.
    _wanted: list[int] = field(default_factory=list)
    _stripes: list[ReceiveRateLog] = field(default_factory=list)
    _agent: AgentChannel | None = None
    _stream: Stream[BroadcastMemberReport, ReceivedBytes] | None = None
    busy: bool = False  # True while a call to the member is in progress
    # True if the source was found unchanged after the member had received all files.
    source_seen: bool = False
    placing: bool = False  # True once putting the files in place has begun
    placed: bool = False
    # The value of `have_bytes` when the member last made real progress: it then had one more whole
    # piece, or the last bytes.
    _proved_bytes: int = 0
    _proved_at: float = field(default_factory=time.monotonic)

    @property
    def host(self) -> Host:
        return self.session.host

    @property
    def name(self) -> str:
        return self.session.host.name

    @property
    def agent(self) -> AgentChannel:
        """Return the channel over which the member joined. If it is closed, calls fail."""
        return self._agent or self.session.agent()

    @property
    def received_bytes(self) -> int:
        return self._received_before + self._received.have_bytes

    @property
    def arrived_bytes(self) -> int:
        """Return how many of the initially missing bytes (`lacking_bytes`) the member has by now.

        The member has received these bytes in this broadcast, or in an earlier one that was
        interrupted.
        """
        known_bytes = max(
            self.received_bytes, self.have_bytes - (self.total_bytes - self.lacking_bytes)
        )
        return self.lacking_bytes if self.is_complete else min(known_bytes, self.lacking_bytes)

    @property
    def best_rate(self) -> float | None:
        """Return the highest rate at which the member received, in bytes per second."""
        return self._received.best_rate

    def stalled_s(self, since: float) -> float:
        """Return for how many seconds the member has received no piece.

        Only the time after `since` (in monotonic seconds) counts, because there was no new piece
        to send before that.
        """
        return time.monotonic() - max(since, self._proved_at)

    @property
    def is_stuck(self) -> bool:
        return not self.is_complete and self._feeds is not None and self._received.idle_s > STUCK_S

    @property
    def address(self) -> str | None:
        """Return the address at which other hosts reach the member; None if it is not known."""
        if self.host.advertise:
            return self.host.advertise.strip("[]")
        literal = self.host.address.strip("[]")
        try:
            return str(ipaddress.ip_address(literal))
        except ValueError:
            fields = (self.agent.hello.ssh_connection or "").split()
            return fields[2] if len(fields) == 4 else None

    @property
    def site(self) -> str:
        return _network_of(self.address or "")

    @property
    def host_join_args(self) -> Args:
        """Return those arguments of broadcast.join that differ between members.

        Examples are the ports that the host may use and its limit of bandwidth.
        """
        allowed = {
            "ports": list(self.host.ports),
            "reserve": self.host.reserve,
            "rate": self.host.bwlimit or 0,
        }
        return {**allowed, **self.join_args}

    @property
    def is_complete(self) -> bool:
        return self.have_bytes >= self.total_bytes or (
            not self.lacking_bytes and not self.content_differs
        )

    @property
    def is_verified(self) -> bool:
        """Return whether all files of the member were compared with the hashes."""
        return self.have_bytes >= self.total_bytes

    def join(
        self, args: Args, report: Callable[[BroadcastMemberReport | TfdeployError], None]
    ) -> None:
        """Let the member join the broadcast until `leave` is called.

        A thread calls `report` with each report of the member, and with the error that ends the
        connection.
        """
        flow = BROADCAST_LEND if self.is_lender else BROADCAST_JOIN
        agent = self._agent = self.session.agent()
        stream = self._stream = agent.stream(flow, args)

        def listen() -> None:
            began, reports = time.monotonic(), 0
            try:
                for item, _ in stream:
                    reports += 1
                    if reports > REPORT_BURST + MAX_REPORTS_PER_S * (time.monotonic() - began):
                        raise BadAnswer("the host sends too many reports", where=self.name)
                    report(item)
            except TfdeployError as error:
                report(error)

        start_thread(listen, name=f"broadcast-{self.name}")

    def leave(self) -> None:
        if self.feeder is not None:
            self.feeder.close()
        if self._stream is not None:
            self._stream.close()

    def record_lost_connection(self, why: TfdeployError) -> None:
        """Record that the connection has ended. What the member has received stays on its disk."""
        self.why_lost, self.reconnects, self.port = why, self.reconnects + 1, None
        if self.feeder is not None:
            self.feeder.close()

    def reset_for_reconnect(self, session: Session) -> None:
        """Reset the state for a new connection, over which nothing was sent yet.

        The caller must wait until no call to the member is in progress.
        """
        self.session = session
        self._received_before = self.received_bytes
        self._received, self._stripes = ReceiveRateLog(), [ReceiveRateLog() for _ in self._stripes]
        self.have_bytes, self.source_seen, self.placing = 0, False, False
        self._proved_bytes, self._proved_at = 0, time.monotonic()
        self.feeder, self.stripes_from_control, self._feeds, self._roots = (
            None,
            frozenset(),
            None,
            0,
        )

    def shorten_timeouts_if_silent(self) -> None:
        """Shorten the session's timeouts if the member is silent, because others wait for it."""
        if self._received.idle_s > SILENT_S:
            with contextlib.suppress(TfdeployError):
                self.session.agent().shorten_timeouts()

    def record_report(self, report: BroadcastMemberReport) -> None:
        """Record a report of the member.

        Progress counts only in whole pieces. Otherwise a host that claims one more byte in each
        report could stay in the broadcast for ever.
        """
        self.have_bytes = (
            self.have_bytes if report.have is None else min(report.have, self.total_bytes)
        )
        if self.have_bytes >= self._proved_bytes + PIECE_BYTES or self.is_verified:
            self._proved_bytes, self._proved_at = self.have_bytes, time.monotonic()
        if report.received is not None:
            # A member may receive some pieces twice, so up to twice the total size is believed.
            self._received.record_bytes(min(report.received, 2 * self.total_bytes))
        # Until a member has a plan, it reports only one stripe, so the lists may differ in length.
        for log, have in zip(self._stripes, report.stripes, strict=False):
            log.record_bytes(have)

    def set_stripes(self, wanted_bytes: list[int]) -> None:
        """Set the number of stripes, and how many bytes each stripe has."""
        self._wanted, self._stripes = wanted_bytes, [ReceiveRateLog() for _ in wanted_bytes]

    def to_planner_member(self, *, is_expected: bool = False) -> Member:
        """Return the values about the member that the planner needs.

        `is_expected`: the member has not joined yet, but is expected to join soon.
        """
        waits = self.is_complete or self._feeds is None
        return Member(
            name=self.name,
            site=self.site,
            serves=(self.port is not None or is_expected)
            and self.address is not None
            and len(self.accusers) < 2,
            have_bytes=self.total_bytes if self.is_complete else self.have_bytes,
            wanted_bytes=self.total_bytes,
            rate=self._received.bytes_per_s,
            starved_s=0.0 if waits else self._received.idle_s,
            flowing_s=self._received.flowing_s,
            intakes=tuple(
                StripeProgress(
                    have_bytes=wanted if self.is_complete else log.have_bytes,
                    wanted_bytes=wanted,
                    rate=log.bytes_per_s,
                    starved_s=0.0 if waits else log.idle_s,
                    flowing_s=log.flowing_s,
                )
                for wanted, log in zip(self._wanted, self._stripes, strict=True)
            ),
        )

    # --- calls to the member, one at a time

    def needs_update(self, feeds: tuple[Feed, ...], root_count: int) -> bool:
        return self._roots < root_count or self._feeds is None or self._feeds[1] != feeds

    def send_feeds(
        self,
        broadcast_id: str,
        stripe_count: int,
        feeds: tuple[Feed, ...],
        parents: dict[str, tuple[str, int]],
        root_hashes: list[bytes],
    ) -> None:
        """Tell the member which members send to it (`feeds`), if that has changed.

        The same call sends the root hashes that the member lacks.
        `parents`: {name: (address, port)}.
        """
        if self._feeds == (stripe_count, feeds):
            return
        rows = [
            [name, *parents[name], sorted(feed.stripe for feed in feeds if feed.parent == name)]
            for name in sorted({feed.parent for feed in feeds if feed.parent})
        ]
        control_stripes = sorted(feed.stripe for feed in feeds if not feed.parent)
        self.parents.update(feed.parent for feed in feeds)
        args = {
            "id": broadcast_id,
            "stripes": stripe_count,
            "parents": rows,
            "here": control_stripes,
            **self._unsent_root_args(root_hashes),
        }
        self.agent.call(BROADCAST_FEEDS, args, timeout_s=CALL_S)
        self._roots = len(root_hashes)
        if self._feeds is None:
            for log in (self._received, *self._stripes):
                log.start_idle_timer()
        self._feeds = stripe_count, feeds

    def send_root_hashes(self, id_: str, root_hashes: list[bytes]) -> None:
        """Send the root hashes that the member lacks."""
        if len(root_hashes) > self._roots:
            self.agent.call(
                BROADCAST_ROOTS,
                {"id": id_, **self._unsent_root_args(root_hashes)},
                timeout_s=CALL_S,
            )
            self._roots = len(root_hashes)

    def _unsent_root_args(self, root_hashes: list[bytes]) -> Args:
        return {"first": self._roots, "roots": [root.hex() for root in root_hashes[self._roots :]]}


@functools.cache
def _network_of(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    return str(ipaddress.ip_network((parsed, _SITE_BITS[parsed.version]), strict=False))
