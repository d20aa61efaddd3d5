"""One broadcast: what some hosts lack goes to all of them, each feeding others while it receives.

The planner says who feeds whom, anew whenever a host dies, lags or is not reached; nothing that has arrived is sent again.
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
from tfdeploy.errors import HostFailed, TfdeployError
from tfdeploy.model.answers.broadcast import Said
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.events import Emit
from tfdeploy.operations.broadcast.feeder import Feeder
from tfdeploy.operations.broadcast.source import Source
from tfdeploy.operations.broadcast.taker import Taker
from tfdeploy.operations.emit import note
from tfdeploy.operations.launching.certificates import certificates
from tfdeploy.planning.broadcast.feeds import Feed, FeedPlan
from tfdeploy.planning.broadcast.first_plan import first_plan
from tfdeploy.planning.broadcast.next_plan import next_plan

CALLS_AT_ONCE = 16
PLAN_S = 0.5  # between two looks at how far all are
STILL_S = 120.0  # a broadcast in which nobody receives anything for so long is given up
AHEAD = 4  # segments that are summed ahead of the quickest host: they are still in the page cache when they are sent
LISTEN_S = 30.0

Progress = Callable[[str, int, int], None]


@dataclass
class Broadcast:
    """`takers`: by host name. `progress(host, received, lacking)` is called as they report."""

    source: Source
    takers: Mapping[str, Taker]
    emit: Emit
    progress: Progress
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    here_bytes: int = 0  # that this machine sent
    _said: queue.SimpleQueue[tuple[str, Said | Exception]] = field(default_factory=queue.SimpleQueue)
    _roots: list[bytes] = field(default_factory=list)
    _shut: set[tuple[str, str]] = field(default_factory=set)
    _plan: FeedPlan | None = None
    _feeds: dict[str, tuple[Feed, ...]] = field(default_factory=dict)  # by child
    _silent: set[str] = field(default_factory=set)  # hosts that have not said yet that they take part
    _ended: bool = False
    _moved_at: float = field(default_factory=time.monotonic)

    def run(self, join: Callable[[Taker], Args]) -> dict[str, TfdeployError]:
        """Until all hosts have all, but for those that failed: these and why. `join`: a host's arguments, besides those of any
        broadcast. Raises SourceChanged."""
        keys = certificates(f"broadcast {self.id}", self.takers)
        members = sorted(self.takers)
        threading.Thread(target=self._sum, name="sums", daemon=True).start()
        try:
            for taker in self.takers.values():
                args = {**join(taker), "id": self.id, "host": taker.name, "members": members, "certs": keys[taker.name]}
                try:
                    taker.join(args, lambda name, said: self._said.put((name, said)))
                except TfdeployError as error:
                    self._out(taker, error)
            with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
                try:
                    self._await_ports()
                    while not self._done():
                        self._hear(PLAN_S)
                        self._act(pool)
                finally:
                    self._ended = True
        finally:
            self._ended = True
            for taker in self.takers.values():
                taker.leave()
        return {name: taker.error for name, taker in self.takers.items() if taker.error is not None}

    def fed_by(self, host: str) -> str | None:
        """Who fed it last: a host, "" for this machine, None for nobody."""
        feeds = self._feeds.get(host, ())
        return feeds[-1].parent if feeds else None

    def _await_ports(self) -> None:
        """Each host says first on which port it listens."""
        until = time.monotonic() + LISTEN_S
        self._silent = set(self.takers) - {name for name, each in self.takers.items() if each.error}
        while self._silent and time.monotonic() < until:
            self._hear(until - time.monotonic())
        for name in self._silent:
            self._out(self.takers[name], HostFailed("it did not begin to take part", where=name))

    def _hear(self, within_s: float) -> None:
        """All reports that are there, or the first within that time."""
        try:
            name, said = self._said.get(timeout=max(0.01, within_s))
            while True:
                if name:
                    self._note(self.takers[name], said)
                name, said = self._said.get_nowait()
        except queue.Empty:
            return

    def _note(self, taker: Taker, said: Said | Exception) -> None:
        if isinstance(said, Exception):
            if not isinstance(said, TfdeployError):
                raise said
            self._out(taker, said)
            return
        if taker.name in self._silent:
            self._silent.discard(taker.name)
            taker.port = said.port
            return
        if said.failed is not None:
            self._failed(taker, *said.failed)
            return
        before = taker.received_bytes
        taker.note(said)
        if taker.received_bytes != before:
            self._moved_at = time.monotonic()
        self.progress(taker.name, taker.received_bytes, taker.lacking_bytes)

    def _failed(self, taker: Taker, parent: str, word: str, why: str) -> None:
        if word == "disk":
            self._out(taker, HostFailed(f"it could not write the data: {why}", where=taker.name))
        elif word == "differs" and not taker.differs:
            taker.differs = True
            note(self.emit, f"files of {taker.name} differ from the source, though not in size or time", host=taker.name)
        elif parent in self.takers and (taker.name, parent) not in self._shut:
            self._shut.add((taker.name, parent))
            if word == "wrong":
                self.takers[parent].accused.add(taker.name)
                note(self.emit, f"{parent} sent {taker.name} a wrong piece: {taker.name} gets it from another", level="warning")
            elif not self.takers[parent].error:
                how = "does not reach" if word == "unreached" else "lost"
                note(self.emit, f"{taker.name} {how} {parent}: {why}", level="detail", host=taker.name)

    def _out(self, taker: Taker, error: TfdeployError) -> None:
        if taker.error is None:
            taker.error = error
            if taker.feeder is not None:
                taker.feeder.close()

    # --- what is due

    def _done(self) -> bool:
        if time.monotonic() - self._moved_at > STILL_S:
            for taker in self._live():
                if not taker.complete:
                    self._out(taker, HostFailed(f"nothing more of the data came for {STILL_S:g} s", where=taker.name))
        waited_for = [taker for taker in self._live() if not taker.complete]
        if len(waited_for) < len(self.takers):
            for taker in waited_for:
                taker.hurry_if_silent()
        return not waited_for

    def _live(self) -> list[Taker]:
        return [taker for taker in self.takers.values() if taker.error is None]

    def _act(self, pool: ThreadPoolExecutor) -> None:
        """Plans, and tells each host what has changed for it."""
        if self.source.error is not None:
            raise self.source.error
        members = [taker.member() for taker in self.takers.values()]
        out = frozenset(name for name, taker in self.takers.items() if taker.error is not None)
        if self._plan is None:
            plan = first_plan([member for member in members if member.name not in out], self.source.cut.total_bytes)
            if plan.stripes > 1:
                wanted = self.source.cut.stripe_bytes(plan.stripes)
                for taker in self.takers.values():
                    taker.set_stripes(wanted)
        else:
            plan = next_plan(self._plan, members, shut=frozenset(self._shut), out=out)
        if plan is not self._plan:
            self._plan, self._feeds = plan, dict.fromkeys(self.takers, ())
            for feed in plan.feeds:
                self._feeds[feed.child] = (*self._feeds[feed.child], feed)
        for taker in self._live():
            if not taker.busy and taker.is_behind(self._feeds[taker.name], len(self._roots)):
                taker.busy = True
                pool.submit(self._guarded, taker)

    def _tell(self, taker: Taker) -> None:
        """Calls it with what is new for it."""
        assert self._plan is not None
        feeds = self._feeds[taker.name]
        parents = {name: (each.address or "", each.port or 0) for name, each in self.takers.items()}
        taker.send_feeds(self.id, self._plan.stripes, feeds, parents)
        taker.send_roots(self.id, list(self._roots))
        self._feed_from_here(taker, feeds)

    def _guarded(self, taker: Taker) -> None:
        try:
            if not self._ended and taker.error is None:
                self._tell(taker)
        except Exception as error:  # noqa: BLE001 - the main loop raises what is a bug
            self._said.put((taker.name, error))
        finally:
            taker.busy = False

    def _feed_from_here(self, taker: Taker, feeds: tuple[Feed, ...]) -> None:
        """In other stripes than before it is asked anew which pieces it wants."""
        stripes = frozenset(feed.stripe for feed in feeds if not feed.parent)
        if stripes == taker.from_here:
            return
        if taker.feeder is not None:
            taker.feeder.close()
        taker.from_here, taker.feeder = stripes, None
        if stripes:
            failed = lambda error: self._said.put((taker.name, error))  # noqa: E731 - it belongs to this host
            taker.feeder = Feeder(self.id, taker.agent, self.source, self._sent, failed)

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
                self._said.put(("", Said()))  # wakes the main loop
        except Exception as error:  # noqa: BLE001 - the main loop raises it
            self.source.error = error
