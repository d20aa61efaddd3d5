"""One host of a broadcast, as this machine sees it: its session, what it has, who feeds it."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tfdeploy.agent.pieces import PIECE_BYTES
from tfdeploy.errors import BadAnswer, TfdeployError
from tfdeploy.model.answers.broadcast import (
    BROADCAST_FEEDS,
    BROADCAST_JOIN,
    BROADCAST_LEND,
    BROADCAST_ROOTS,
    Had,
    MemberReport,
)
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.inventory import Host
from tfdeploy.operations.broadcast.feeder import Feeder
from tfdeploy.operations.broadcast.intake_log import IntakeLog
from tfdeploy.planning.broadcast.feeds import Feed, Intake, Member
from tfdeploy.transport.protocols import AgentChannel, Session, Stream

CALL_S = 60.0
SILENT_S = 2.0
# A member reports twice a second, and each failure of a piece or parent besides. One that reports
# more than this floods us.
MAX_REPORTS_PER_S = 20
REPORT_BURST = 1000
STUCK_S = 3.0
_SITE_BITS = {4: 24, 6: 64}  # hosts of one such network are taken for near each other


@dataclass
class MemberSession:
    """`lacking_bytes`: what it lacks of the `total_bytes` that are moved, by size and time."""

    session: Session
    lacking_bytes: int
    total_bytes: int
    join_args: Args = field(default_factory=dict)  # of broadcast.join, for this host alone
    lends: bool = False  # it has all, is given nothing, and has no part in the job
    port: int | None = None
    have_bytes: int = 0
    differs: bool = False  # its files seemed right by size and time, and are not
    error: TfdeployError | None = None
    accused: set[str] = field(default_factory=set)  # children that had a wrong piece from it
    # every host that was ever its parent; it may complain about these alone
    parents: set[str] = field(default_factory=set)
    feeder: Feeder | None = None
    from_here: frozenset[int] = frozenset()  # the stripes that this machine feeds
    times: int = 0  # that its connection has ended
    why_lost: TfdeployError | None = None  # the last time
    _received_before: int = 0  # over connections that have ended
    _feeds: tuple[int, tuple[Feed, ...]] | None = None
    _roots: int = 0  # so many were sent
    _received: IntakeLog = field(default_factory=IntakeLog)
    _wanted: list[int] = field(default_factory=list)  # by stripe, where there are several
    _stripes: list[IntakeLog] = field(default_factory=list)
    _agent: AgentChannel | None = None
    _stream: Stream[MemberReport, Had] | None = None
    busy: bool = False  # a call to it is under way
    source_seen: bool = False  # it had all when the source was seen to be as it was
    placing: bool = False  # what it has is put in place, or was
    placed: bool = False
    _proved_bytes: int = 0  # `have_bytes` when it last grew by a whole piece
    _proved_at: float = field(default_factory=time.monotonic)

    @property
    def host(self) -> Host:
        return self.session.host

    @property
    def name(self) -> str:
        return self.session.host.name

    @property
    def agent(self) -> AgentChannel:
        """The one that takes part: a call to it fails once its connection has ended."""
        return self._agent or self.session.agent()

    @property
    def received_bytes(self) -> int:
        return self._received_before + self._received.have_bytes

    @property
    def arrived_bytes(self) -> int:
        """Of what it lacked: received, or found in what an earlier broadcast left."""
        known = max(self.received_bytes, self.have_bytes - (self.total_bytes - self.lacking_bytes))
        return self.lacking_bytes if self.complete else min(known, self.lacking_bytes)

    @property
    def best_rate(self) -> float | None:
        """Bytes a second that all its parents together gave it in its best seconds."""
        return self._received.best_rate

    def stalled_s(self, since: float) -> float:
        """Return for how long it has had no further piece. `since`: when its parents first had
        something to give."""
        return time.monotonic() - max(since, self._proved_at)

    @property
    def is_stuck(self) -> bool:
        return not self.complete and self._feeds is not None and self._received.still_s > STUCK_S

    @property
    def address(self) -> str | None:
        """What the other hosts call it; None: nothing says so."""
        if self.host.advertise:
            return self.host.advertise.strip("[]")
        literal = self.host.address.strip("[]")
        try:
            return str(ipaddress.ip_address(literal))
        except ValueError:
            words = (self.agent.hello.ssh_connection or "").split()
            return words[2] if len(words) == 4 else None

    @property
    def site(self) -> str:
        return _site(self.address or "")

    @property
    def own_args(self) -> Args:
        """Of broadcast.join, with what the inventory allows there."""
        allowed = {
            "ports": list(self.host.ports),
            "reserve": self.host.reserve,
            "rate": self.host.bwlimit or 0,
        }
        return {**allowed, **self.join_args}

    @property
    def complete(self) -> bool:
        return self.have_bytes >= self.total_bytes or (not self.lacking_bytes and not self.differs)

    @property
    def is_verified(self) -> bool:
        """All that is moved lies there, and was compared with its sums."""
        return self.have_bytes >= self.total_bytes

    def join(self, args: Args, said: Callable[[MemberReport | TfdeployError], None]) -> None:
        """Takes part, on a thread of its own, until `leave`."""
        flow = BROADCAST_LEND if self.lends else BROADCAST_JOIN
        agent = self._agent = self.session.agent()
        stream = self._stream = agent.stream(flow, args)

        def listen() -> None:
            began, reports = time.monotonic(), 0
            try:
                for item, _ in stream:
                    reports += 1
                    if reports > REPORT_BURST + MAX_REPORTS_PER_S * (time.monotonic() - began):
                        raise BadAnswer("its reports have no end", where=self.name)
                    said(item)
            except TfdeployError as error:
                said(error)

        threading.Thread(target=listen, name=f"broadcast-{self.name}", daemon=True).start()

    def leave(self) -> None:
        if self.feeder is not None:
            self.feeder.close()
        if self._stream is not None:
            self._stream.close()

    def lost(self, why: TfdeployError) -> None:
        """Its connection has ended: what it has lies on its disk."""
        self.why_lost, self.times, self.port = why, self.times + 1, None
        if self.feeder is not None:
            self.feeder.close()

    def begin_again(self, session: Session) -> None:
        """It has to join, and to be told everything again. No call to it is under way."""
        self.session = session
        self._received_before = self.received_bytes
        self._received, self._stripes = IntakeLog(), [IntakeLog() for _ in self._stripes]
        self.have_bytes, self.source_seen, self.placing = 0, False, False
        self._proved_bytes, self._proved_at = 0, time.monotonic()
        self.feeder, self.from_here, self._feeds, self._roots = None, frozenset(), None, 0

    def hurry_if_silent(self) -> None:
        """Others that are done wait for this host alone: whether it is gone is found out sooner."""
        if self._received.still_s > SILENT_S:
            with contextlib.suppress(TfdeployError):
                self.session.agent().hurry()

    def record(self, said: MemberReport) -> None:
        """Progress counts in whole pieces: a host that claims one byte more each time would stay in
        the broadcast for ever."""
        self.have_bytes = self.have_bytes if said.have is None else min(said.have, self.total_bytes)
        if self.have_bytes >= self._proved_bytes + PIECE_BYTES or self.is_verified:
            self._proved_bytes, self._proved_at = self.have_bytes, time.monotonic()
        if said.received is not None:
            # some pieces arrive twice
            self._received.record(min(said.received, 2 * self.total_bytes))
        # before its first plan it has one stripe
        for log, have in zip(self._stripes, said.stripes, strict=False):
            log.record(have)

    def set_stripes(self, wanted_bytes: list[int]) -> None:
        """What a host receives in each stripe, in all."""
        self._wanted, self._stripes = wanted_bytes, [IntakeLog() for _ in wanted_bytes]

    def member(self, *, is_expected: bool = False) -> Member:
        """As the planner sees it. `is_expected`: it will say its port."""
        waits = self.complete or self._feeds is None
        return Member(
            self.name,
            self.site,
            serves=(self.port is not None or is_expected)
            and self.address is not None
            and len(self.accused) < 2,
            have_bytes=self.total_bytes if self.complete else self.have_bytes,
            wanted_bytes=self.total_bytes,
            rate=self._received.rate,
            starved_s=0.0 if waits else self._received.still_s,
            flowing_s=self._received.flowing_s,
            intakes=tuple(
                Intake(
                    wanted if self.complete else log.have_bytes,
                    wanted,
                    log.rate,
                    0.0 if waits else log.still_s,
                    log.flowing_s,
                )
                for wanted, log in zip(self._wanted, self._stripes, strict=True)
            ),
        )

    # --- calls, one at a time for each host

    def is_behind(self, feeds: tuple[Feed, ...], roots: int) -> bool:
        return self._roots < roots or self._feeds is None or self._feeds[1] != feeds

    def send_feeds(
        self,
        id_: str,
        stripes: int,
        feeds: tuple[Feed, ...],
        parents: dict[str, tuple[str, int]],
        roots: list[bytes],
    ) -> None:
        """`parents`: name -> address and port. The roots that it has not got yet go with them.
        Nothing is sent where nothing changed."""
        if self._feeds == (stripes, feeds):
            return
        rows = [
            [name, *parents[name], sorted(feed.stripe for feed in feeds if feed.parent == name)]
            for name in sorted({feed.parent for feed in feeds if feed.parent})
        ]
        here = sorted(feed.stripe for feed in feeds if not feed.parent)
        self.parents.update(feed.parent for feed in feeds)
        args = {
            "id": id_,
            "stripes": stripes,
            "parents": rows,
            "here": here,
            **self._new_roots(roots),
        }
        self.agent.call(BROADCAST_FEEDS, args, timeout_s=CALL_S)
        self._roots = len(roots)
        if self._feeds is None:
            for log in (self._received, *self._stripes):
                log.begin()
        self._feeds = stripes, feeds

    def send_roots(self, id_: str, roots: list[bytes]) -> None:
        """Those that it has not got yet."""
        if len(roots) > self._roots:
            self.agent.call(
                BROADCAST_ROOTS, {"id": id_, **self._new_roots(roots)}, timeout_s=CALL_S
            )
            self._roots = len(roots)

    def _new_roots(self, roots: list[bytes]) -> Args:
        return {"first": self._roots, "roots": [root.hex() for root in roots[self._roots :]]}


@functools.cache
def _site(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    return str(ipaddress.ip_network((parsed, _SITE_BITS[parsed.version]), strict=False))
