"""Simulate hosts with links and faults, and the control machine, which calls the planner.

Hosts are numbers; the highest number is the control machine. Rates are in bytes per second, times
in seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tfdeploy.operations.broadcast.intake_log import BREAK_S  # noqa: E402
from tfdeploy.planning.broadcast.feeds import (  # noqa: E402
    CONTROL_MACHINE,
    FeedPlan,
    Member,
    StripeProgress,
)
from tfdeploy.planning.broadcast.first_plan import first_plan  # noqa: E402
from tfdeploy.planning.broadcast.next_plan import next_plan  # noqa: E402

WINDOW_S = 3  # a rate is averaged over this many seconds


@dataclass(frozen=True)
class Scenario:
    hosts: int
    total_bytes: int
    rate: float  # bytes a second of every link, in each direction
    sites: int = 1  # host n is in site n % sites
    line: float | None = None  # bytes a second from one site to another; if None, no limit
    # slow host -> the fraction of the normal `rate` at which the host receives
    slow_in: Mapping[int, float] = field(default_factory=dict)
    # slow host -> the fraction of the normal `rate` at which the host sends
    slow_out: Mapping[int, float] = field(default_factory=dict)
    deaths: Mapping[int, float] = field(default_factory=dict)  # host -> time of its death
    # host -> the time from which this host hangs. Nothing tells the control machine that it hangs.
    stops: Mapping[int, float] = field(default_factory=dict)
    closed: frozenset[int] = frozenset()  # hosts to which no other host can connect
    # seconds to check, write and read a piece, from its arrival until the host can send it on
    process_s: float = 0.002
    # seconds until a new parent sends the first piece to a child: they connect by TCP and TLS, and
    # exchange the hashes of the pieces and the list of missing pieces
    connect_s: float = 0.05
    rtt_s: float = 0.0005
    noticed_s: float = 1.0  # seconds until the control machine notices a death

    @property
    def wire_s(self) -> float:
        return self.total_bytes / self.rate

    def site(self, host: int) -> int:
        return host % self.sites if host < self.hosts else 0

    def up(self, host: int) -> float:
        return self.rate * self.slow_out.get(host, 1.0)

    def down(self, host: int) -> float:
        return self.rate * self.slow_in.get(host, 1.0)


class Transfer(Protocol):
    """The simulated movement of bytes between the hosts.

    `simulated_pieces` moves each piece, `simulated_flow` lets bytes flow.
    """

    now: float
    crossed_bytes: float  # bytes sent from one site to another
    from_here_bytes: float  # bytes sent by the control machine

    def feed(self, child: int, stripe: int, parent: int, at: float) -> None: ...

    def end(self, host: int) -> None:
        """End a host: from now on it neither sends nor receives."""

    def advance(self, until: float) -> None: ...

    def have_bytes(self, host: int, stripe: int) -> float: ...

    def completed_at(self, host: int) -> float | None: ...


class MakesTransfer(Protocol):
    def __call__(self, scenario: Scenario, stripes: int) -> Transfer: ...


@dataclass(frozen=True)
class Outcome:
    stripes: int
    completed: Mapping[int, float]  # host -> time at which it was complete
    lacking: int  # number of living hosts that are not complete
    moves: int
    crossed_bytes: float
    from_here_bytes: float
    # (second, the fraction of all wanted bytes that the hosts have)
    shares: tuple[tuple[float, float], ...]


class Control:
    """The control machine. Once a second, as in tfdeploy itself, it calls the planner and tells the
    hosts what has changed in the plan."""

    def __init__(self, scenario: Scenario, transfer: MakesTransfer) -> None:
        self._scenario = scenario
        self._names = [f"n{number + 1}" for number in range(scenario.hosts)]
        self._number = {name: number for number, name in enumerate(self._names)} | {
            CONTROL_MACHINE: scenario.hosts
        }
        self._plan = first_plan(
            [self._member(host, ()) for host in range(scenario.hosts)], scenario.total_bytes
        )
        self._transfer = transfer(scenario, self._plan.stripes)
        self._history: list[list[list[float]]] = []  # [second][host][stripe]: bytes
        # [host][stripe]: the second in which the host last received bytes of the stripe
        self._fed = [[0.0] * self._plan.stripes for _ in self._names]
        # [host][stripe]: the second since which bytes of the stripe have arrived without a break
        self._flows = [[0.0] * self._plan.stripes for _ in self._names]
        self._complete: dict[int, Member] = {}
        self._out: set[int] = set()
        self._gone: set[int] = set()
        self._moves = 0
        self._shares: list[tuple[float, float]] = []

    def run(self, longest_s: float) -> Outcome:
        self._tell(FeedPlan(stripes=self._plan.stripes, feeds=()), self._plan)
        second = 0.0
        while self._lacking() and second < longest_s:
            second += 1.0
            self._befall(second)
            self._transfer.advance(second)
            self._replan(second)
        done = {
            host: at
            for host in range(self._scenario.hosts)
            if (at := self._transfer.completed_at(host)) is not None
        }
        return Outcome(
            stripes=self._plan.stripes,
            completed=done,
            lacking=len(self._lacking()),
            moves=self._moves,
            crossed_bytes=self._transfer.crossed_bytes,
            from_here_bytes=self._transfer.from_here_bytes,
            shares=tuple(self._shares),
        )

    def _lacking(self) -> list[int]:
        return [
            host
            for host in range(self._scenario.hosts)
            if host not in self._gone and self._transfer.completed_at(host) is None
        ]

    def _befall(self, second: float) -> None:
        """Apply the faults that are due before this second, in the order of their times."""
        due = [
            (at, host)
            for fates in (self._scenario.deaths, self._scenario.stops)
            for host, at in fates.items()
        ]
        for at, host in sorted(due):
            if at < second and host not in self._gone:
                self._transfer.advance(max(at, self._transfer.now))
                self._transfer.end(host)
                self._gone.add(host)

    def _replan(self, second: float) -> None:
        self._observe(second)
        self._out |= {
            host
            for host, at in self._scenario.deaths.items()
            if at + self._scenario.noticed_s <= second
        }
        members = [
            self._complete.get(host) or self._now(host, second)
            for host in range(self._scenario.hosts)
        ]
        plan = next_plan(
            self._plan, members, lost_members=frozenset(self._names[host] for host in self._out)
        )
        if plan is not self._plan:
            self._tell(self._plan, plan)
            self._plan = plan

    def _now(self, host: int, second: float) -> Member:
        member = self._member(host, self._intakes(host, second))
        if member.is_complete:
            self._complete[host] = member
        return member

    def _observe(self, second: float) -> None:
        stripes = range(self._plan.stripes)
        now = [
            [self._transfer.have_bytes(host, stripe) for stripe in stripes]
            for host in range(self._scenario.hosts)
        ]
        if self._history:
            for fed, flows, before, after in zip(
                self._fed, self._flows, self._history[-1], now, strict=True
            ):
                for stripe in stripes:
                    if after[stripe] > before[stripe]:
                        if not before[stripe] or second - fed[stripe] > BREAK_S:
                            flows[stripe] = second
                        fed[stripe] = second
        self._history = [*self._history[-WINDOW_S:], now]
        alive = [sum(each) for host, each in enumerate(now) if host not in self._gone]
        self._shares.append(
            (second, sum(alive) / (self._scenario.total_bytes * max(1, len(alive))))
        )

    def _intakes(self, host: int, second: float) -> tuple[StripeProgress, ...]:
        first, last, seconds = (
            self._history[0][host],
            self._history[-1][host],
            len(self._history) - 1,
        )
        wanted = self._scenario.total_bytes // self._plan.stripes
        return tuple(
            StripeProgress(
                have_bytes=wanted if have >= wanted - 1 else int(have),
                wanted_bytes=wanted,
                rate=(have - before) / seconds if seconds else None,
                starved_s=second - fed,
                flowing_s=fed - flows if have else 0.0,
            )
            for have, before, fed, flows in zip(
                last, first, self._fed[host], self._flows[host], strict=True
            )
        )

    def _member(self, host: int, intakes: tuple[StripeProgress, ...]) -> Member:
        rates = [intake.rate for intake in intakes if intake.rate is not None]
        return Member(
            name=self._names[host],
            site=str(self._scenario.site(host)),
            serves=host not in self._scenario.closed,
            have_bytes=sum(intake.have_bytes for intake in intakes),
            wanted_bytes=sum(intake.wanted_bytes for intake in intakes)
            or self._scenario.total_bytes,
            rate=sum(rates) if rates else None,
            starved_s=min((intake.starved_s for intake in intakes), default=0.0),
            flowing_s=max((intake.flowing_s for intake in intakes), default=0.0),
            intakes=intakes,
        )

    def _tell(self, before: FeedPlan, after: FeedPlan) -> None:
        new = set(after.feeds) - set(before.feeds)
        self._moves += len(new) if before.feeds else 0
        for feed in after.feeds:
            if feed in new:
                at = self._transfer.now + self._scenario.connect_s
                self._transfer.feed(
                    self._number[feed.child], feed.stripe, self._number[feed.parent], at
                )
