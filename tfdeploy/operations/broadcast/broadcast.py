"""One broadcast: what some hosts lack goes to all of them, each feeding others while it receives.

The planner says who feeds whom, anew whenever a host dies, lags or is not reached; nothing that has
arrived is sent again.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tfdeploy.agent.pieces import PIECE_BYTES, SEGMENT
from tfdeploy.errors import HostFailed, HostUnreachable, TfdeployError
from tfdeploy.model.answers.broadcast import MemberReport
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.events import Emit
from tfdeploy.operations.broadcast.feeder import Feeder
from tfdeploy.operations.broadcast.member_session import MemberSession
from tfdeploy.operations.broadcast.report import Report
from tfdeploy.operations.broadcast.source import Source, SourceChanged
from tfdeploy.operations.broadcast.stalled_hosts import StalledHosts
from tfdeploy.operations.emit import emit_note, emit_transfer
from tfdeploy.operations.launching.certificates import certificates
from tfdeploy.planning.broadcast.feeds import Feed, FeedPlan
from tfdeploy.planning.broadcast.first_plan import first_plan
from tfdeploy.planning.broadcast.next_plan import next_plan
from tfdeploy.transport.protocols import Session

CALLS_AT_ONCE = 16
PLAN_S = 0.5  # between two looks at how far all are
AGAIN_S = 0.05
RETURN_S = 5.0  # a host whose connection ended has so long where nobody else is waited for
# segments that are summed ahead of the quickest host: they are still in the page cache when they
# are sent
AHEAD = 4
LISTEN_S = 30.0  # a host may take so long until it takes part,
WAIT_S = 2.0  # but the others begin

Progress = Callable[[str, int, int], None]


@dataclass
class Broadcast:
    """`takers`: by host name. `progress(host, arrived, lacking)` is called as they report. `what`:
    as events call it. `look_again` raises SourceChanged. `place`: puts what a host has in place, on
    which it goes on feeding others. `reconnect`: a new session, where a host's connection ends
    (None: the host fails); raises TfdeployError."""

    source: Source
    takers: Mapping[str, MemberSession]
    emit: Emit
    progress: Progress
    what: str = ""
    look_again: Callable[[], None] = lambda: None
    place: Callable[[MemberSession], None] = lambda taker: None
    reconnect: Callable[[MemberSession], Session] | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    here_bytes: int = 0  # that this machine sent
    _said: queue.SimpleQueue[tuple[MemberSession | None, int, MemberReport | Exception]] = field(
        default_factory=queue.SimpleQueue
    )
    _join_args: dict[str, Args] = field(default_factory=dict)
    _roots: list[bytes] = field(default_factory=list)
    _shut: set[tuple[str, str]] = field(default_factory=set)
    _plan: FeedPlan | None = None  # immutable: threads of the pool read it
    # hosts that have not said yet that they take part; since when
    _silent: dict[str, float] = field(default_factory=dict)
    # hosts that had all in place when their connection ended
    _gone: set[str] = field(default_factory=set)
    _summed: bool = False  # the source, all of it, and it did not change meanwhile
    _looking: bool = False  # whether it has changed since
    _ended: bool = False
    _joined_at: float = 0.0
    _stalled: StalledHosts = field(init=False)
    report: Report = field(init=False)

    def __post_init__(self) -> None:
        self.report = Report(self.what, self.takers, self.emit)
        self._stalled = StalledHosts(self.takers)

    def run(self, join: Callable[[MemberSession], Args]) -> dict[str, TfdeployError]:
        """Until all hosts have all in place, but for those that failed: these and why. `join`: a
        host's arguments, besides those of any broadcast. Raises SourceChanged."""
        keys = certificates(f"broadcast {self.id}", self.takers)
        members = sorted(self.takers)
        threading.Thread(target=self._sum, name="sums", daemon=True).start()
        try:
            for taker in self.takers.values():
                args = {
                    **join(taker),
                    "id": self.id,
                    "host": taker.name,
                    "members": members,
                    "certs": keys[taker.name],
                }
                self._join_args[taker.name] = args
                self._silent[taker.name] = time.monotonic()
                try:
                    taker.join(args, self._hearer(taker))
                except TfdeployError as error:
                    self._out(taker, error)
            with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
                try:
                    self._joined_at = time.monotonic()
                    while not self._done():
                        self._hear(PLAN_S)
                        self._act(pool)
                        self._put_in_place(pool)
                finally:
                    self._ended = True
        finally:
            self._ended = True
            for taker in self.takers.values():
                taker.leave()
        return {name: taker.error for name, taker in self.takers.items() if taker.error is not None}

    def fed_by(self, host: str) -> str | None:
        """Who fed it last: a host, "" for this machine, None for nobody."""
        return next(iter(reversed(self.report.fed.get(host, {}).values())), None)

    def _expected(self) -> set[str]:
        """Hosts that are planned with though they have not said on which port they listen. One that
        takes long is placed when it has."""
        if time.monotonic() > self._joined_at + WAIT_S and len(self._silent) < len(self.takers):
            return set()
        return {name for name in self._silent if not self.takers[name].times}

    def _give_up_silent(self) -> None:
        """One that has to connect again is not waited for long where all others are done."""
        others_done = all(taker.placed for taker in self._live() if taker.name not in self._silent)
        for name, since in list(self._silent.items()):
            why = self.takers[name].why_lost
            if time.monotonic() - since > (RETURN_S if why and others_done else LISTEN_S):
                self._out(
                    self.takers[name],
                    why or HostFailed("it did not begin to take part", where=name),
                )

    def _give_up_stalled(self) -> None:
        of_host = f" of {self.source.held_by}" if self.source.held_by else ""
        waiting = [
            taker for taker in self._live() if not taker.complete and taker.name not in self._silent
        ]
        for taker in self._stalled.timed_out(waiting):
            what = (
                f"it has received no further piece of the data{of_host} for "
                f"{self._stalled.timeout_s:g} s"
            )
            self._out(taker, HostFailed(what, where=taker.name, next="the same command again"))

    def _hear(self, within_s: float) -> None:
        """What is said within that time, or until something is due at once: how far a host is never
        is, until it has all. With a look for each such report, 32 hosts cost the client a sixth of
        a core, and 200 all of it."""
        deadline = time.monotonic() + within_s
        due = False
        while not (due and self._said.empty()) and (left_s := deadline - time.monotonic()) > 0:
            try:
                taker, times, said = self._said.get(timeout=left_s)
            except queue.Empty:
                return
            if taker is None or times != taker.times:
                due = True
            else:
                was_complete = taker.complete
                self._handle_report(taker, said)
                due = (
                    due
                    or isinstance(said, Exception)
                    or said.have is None
                    or taker.complete != was_complete
                )

    def _handle_report(self, taker: MemberSession, said: MemberReport | Exception) -> None:
        if isinstance(said, Exception):
            if not isinstance(said, TfdeployError):
                raise said
            self._lost(taker, said)
            return
        if taker.error is not None:
            return
        if taker.name in self._silent:
            del self._silent[taker.name]
            taker.port = said.port
            return
        if said.failed is not None:
            self._failed(taker, *said.failed)
            return
        taker.record(said)
        self.progress(taker.name, taker.arrived_bytes, taker.lacking_bytes)

    def _failed(self, taker: MemberSession, parent: str, word: str, why: str) -> None:
        if word == "disk":
            self._out(taker, HostFailed(f"it could not write the data: {why}", where=taker.name))
        elif word == "differs" and taker.name == self.source.held_by:
            self.source.error = SourceChanged(
                "its files changed while they were sent", where=taker.name
            )
        elif word == "differs" and taker.lends:
            emit_note(
                self.emit,
                f"files of {taker.name} differ from the source: the others do not get them from it",
                host=taker.name,
            )
            self._out(taker, HostFailed("its files differ from the source", where=taker.name))
        elif word == "differs" and not taker.differs and not taker.placing:
            taker.differs = True
            emit_note(
                self.emit,
                f"files of {taker.name} differ from the source, though not in size or time",
                host=taker.name,
            )
        elif (
            parent in self.takers
            and parent in taker.parents
            and (taker.name, parent) not in self._shut
        ):
            self._shut.add((taker.name, parent))
            if word == "wrong":
                self.takers[parent].accused.add(taker.name)
                emit_note(
                    self.emit,
                    f"{parent} sent {taker.name} a wrong piece: {taker.name} gets it from another",
                    level="warning",
                )
            elif not self.takers[parent].error:
                how = "does not reach" if word == "unreached" else "lost"
                emit_note(
                    self.emit,
                    f"{taker.name} {how} {parent}: {why}",
                    level="detail",
                    host=taker.name,
                )

    def _lost(self, taker: MemberSession, error: TfdeployError) -> None:
        """A host whose connection ends while it receives is connected to once more, and goes on
        where it was."""
        is_first = isinstance(error, HostUnreachable) and taker.error is None and not taker.times
        is_needed = taker.lends or taker.name == self.source.held_by
        if taker.placed and taker.error is None and not is_needed:
            taker.lost(error)
            self._silent.pop(taker.name, None)
            self._gone.add(taker.name)
        elif not is_first or self.reconnect is None or taker.lends or self._ended:
            self._out(taker, error)
        else:
            emit_note(
                self.emit, f"{error.what}: connecting again", level="warning", host=taker.name
            )
            taker.lost(error)
            self._silent[taker.name] = time.monotonic()
            threading.Thread(
                target=self._come_back, args=(taker, error), name=f"again-{taker.name}", daemon=True
            ).start()

    def _come_back(self, taker: MemberSession, lost: TfdeployError) -> None:
        assert self.reconnect is not None
        hear = self._hearer(taker)
        try:
            session = self.reconnect(taker)
            while taker.busy:  # what was said over the connection that ended fails by itself
                time.sleep(AGAIN_S)
            taker.begin_again(session)
            if not self._ended:
                taker.join(self._join_args[taker.name], hear)
        except TfdeployError:
            hear(lost)  # what went wrong first says more
        except Exception as error:  # noqa: BLE001 - the main loop raises what is a bug
            hear(error)

    def _hearer(self, taker: MemberSession) -> Callable[[MemberReport | Exception], None]:
        """Takes what is said over its connection of now: what an earlier one says late does not
        count."""
        times = taker.times
        return lambda said: self._said.put((taker, times, said))

    def _of_source(self, hear: Callable[[Exception], None]) -> Callable[[Exception], None]:
        """Where the source lies on a host, what fails a feeder may be that host's failure."""
        held_by = self.takers.get(self.source.held_by or "")

        def failed(error: Exception) -> None:
            of_source = (
                held_by is not None
                and isinstance(error, TfdeployError)
                and error.where == held_by.name
            )
            (self._hearer(held_by) if of_source and held_by is not None else hear)(error)

        return failed

    def _wake(self) -> None:
        self._said.put((None, 0, MemberReport()))

    def _out(self, taker: MemberSession, error: TfdeployError) -> None:
        self._silent.pop(taker.name, None)
        if taker.error is None:
            taker.error = error
            if self.what:
                emit_transfer(
                    self.emit,
                    taker.name,
                    self.what,
                    "failed",
                    taker.arrived_bytes,
                    taker.lacking_bytes,
                )
            if taker.feeder is not None:
                taker.feeder.close()
            if taker.name == self.source.held_by and not self._has_all_elsewhere():
                self.source.error = self.source.error or error

    def _has_all_elsewhere(self) -> bool:
        """Whether the others can do without the host that the data comes from."""
        return self._summed and any(taker.complete for taker in self._live())

    # --- what is due

    def _done(self) -> bool:
        self._give_up_silent()
        self._give_up_stalled()
        waited_for = [taker for taker in self._live() if not taker.complete]
        if len(waited_for) < len(self.takers):
            for taker in waited_for:
                taker.hurry_if_silent()
        # who has what they wait for?
        if waited_for and all(taker.is_stuck for taker in waited_for):
            for taker in self._live():
                if taker.lends:
                    taker.hurry_if_silent()
        return not waited_for and all(taker.placed for taker in self._live())

    def _live(self) -> list[MemberSession]:
        return [taker for taker in self.takers.values() if taker.error is None]

    def _act(self, pool: ThreadPoolExecutor) -> None:
        """Plans, and tells each host what has changed for it."""
        if self.source.error is not None:
            raise self.source.error
        expected = self._expected()
        members = [
            taker.member(is_expected=taker.name in expected) for taker in self.takers.values()
        ]
        out = {*self._silent, *self._gone} - expected | {
            name for name, taker in self.takers.items() if taker.error is not None
        }
        before = self._plan
        if before is None:
            plan = first_plan(
                [member for member in members if member.name not in out],
                self.source.cut.total_bytes,
            )
            if plan.stripes > 1:
                wanted = self.source.cut.stripe_bytes(plan.stripes)
                for taker in self.takers.values():
                    taker.set_stripes(wanted)
        else:
            shut = frozenset(self._shut | self._stalled.shut)
            plan = next_plan(before, members, shut=shut, out=frozenset(out))
        if plan is not before:
            self._plan = plan
            self.report.planned(plan)
        self.report.moving()
        for taker in self._live():
            feeds = plan.by_child.get(taker.name, ())
            if (
                taker.name in out
                or taker.busy
                or not self._silent.keys().isdisjoint(
                    {taker.name, *(feed.parent for feed in feeds)}
                )
            ):
                continue
            if taker.is_behind(feeds, len(self._roots)):
                taker.busy = True
                pool.submit(self._guarded, taker, self._hearer(taker))

    def _put_in_place(self, pool: ThreadPoolExecutor) -> None:
        """Each host as soon as it has all: none waits for the others. One that only seems to have
        all, by size and time, once nobody receives any more."""
        if self.source.error is not None:
            raise self.source.error
        received = all(taker.complete for taker in self._live())
        unseen = []
        for taker in self._live() if self._summed else ():
            if (
                taker.placing
                or not taker.complete
                or not (taker.is_verified or received)
                or taker.name in self._silent
            ):
                continue
            if taker.source_seen:
                taker.placing = True
                pool.submit(self._place_member, taker, self._hearer(taker))
            else:
                unseen.append((taker, taker.times))
        if unseen and not self._looking:
            self._looking = True
            pool.submit(self._see_source, unseen)

    def _see_source(self, takers: list[tuple[MemberSession, int]]) -> None:
        """A write that keeps a file's size and time is found only by a look after its last piece
        was sent."""
        try:
            self.look_again()
        except HostUnreachable:  # what these hosts have is what it was when it was summed
            pass
        except Exception as error:  # noqa: BLE001 - the main loop raises it
            self.source.error = error
        for taker, times in takers:
            taker.source_seen = taker.times == times
        self._looking = False
        self._wake()

    def _place_member(self, taker: MemberSession, hear: Callable[[Exception], None]) -> None:
        try:
            self.place(taker)
            taker.placed = True
            self._wake()
        except Exception as error:  # noqa: BLE001 - the main loop raises what is a bug
            hear(error)

    def _tell(self, taker: MemberSession, hear: Callable[[Exception], None]) -> None:
        """Calls it with what is new for it."""
        plan = self._plan
        assert plan is not None
        feeds = plan.by_child.get(taker.name, ())
        parents = {name: (each.address or "", each.port or 0) for name, each in self.takers.items()}
        taker.send_feeds(self.id, plan.stripes, feeds, parents, list(self._roots))
        self._feed_from_here(taker, feeds, hear)
        taker.send_roots(self.id, list(self._roots))

    def _guarded(self, taker: MemberSession, hear: Callable[[Exception], None]) -> None:
        try:
            if not self._ended and taker.error is None:
                self._tell(taker, hear)
        except Exception as error:  # noqa: BLE001 - the main loop raises what is a bug
            hear(error)
        finally:
            taker.busy = False
            self._wake()  # there may be something new for it meanwhile

    def _feed_from_here(
        self, taker: MemberSession, feeds: tuple[Feed, ...], hear: Callable[[Exception], None]
    ) -> None:
        """In other stripes than before it is asked anew which pieces it wants."""
        stripes = frozenset(feed.stripe for feed in feeds if not feed.parent)
        if stripes == taker.from_here:
            return
        if taker.feeder is not None:
            taker.feeder.close()
        taker.from_here, taker.feeder = stripes, None
        if stripes:
            taker.feeder = Feeder(
                self.id, taker.name, taker.agent, self.source, self._sent, self._of_source(hear)
            )

    def _sent(self, count: int) -> None:
        self.here_bytes += count

    def _most(self) -> int:
        """Bytes that the quickest host has."""
        return max((taker.have_bytes for taker in self._live()), default=0)

    def _sum(self) -> None:
        """Sums the source, not far ahead of what was sent."""
        ahead = AHEAD * SEGMENT * PIECE_BYTES
        try:
            for segment in range(self.source.cut.segments):
                while segment * SEGMENT * PIECE_BYTES > self._most() + ahead:
                    if self._ended:
                        return
                    time.sleep(0.05)
                self._roots.append(self.source.sum_next())
                self._stalled.summed_at = time.monotonic()
                self._wake()
            self.look_again()
            self._summed = True
            self._wake()
        except Exception as error:  # noqa: BLE001 - the main loop raises it
            self.source.error = error
