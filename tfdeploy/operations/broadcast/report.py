"""What a broadcast says of itself while it runs and at its end: who feeds whom, how fast it was,
which link was the slowest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfdeploy.model.events import BroadcastFields, Emit, SlowestLink
from tfdeploy.operations.broadcast.member_session import MemberSession
from tfdeploy.operations.emit import emit_broadcast
from tfdeploy.planning.broadcast.feeds import FeedPlan

# links whose rates are this near are as slow as each other: the first of a chain slows down all
# behind it
ALIKE = 1.05

Fed = dict[str, dict[int, str]]  # child -> stripe -> its parent


@dataclass
class Report:
    """`what`: as in the transfers' events; "": nothing is said."""

    what: str
    members: Mapping[str, MemberSession]
    emit: Emit
    fed: Fed = field(default_factory=dict)  # by whom each host is, or was at its end
    _began: float = field(default_factory=time.monotonic)
    _plan: FeedPlan | None = None
    _said: BroadcastFields | None = None

    def planned(self, plan: FeedPlan) -> None:
        if plan is not self._plan:
            self._plan = plan
            for feed in plan.feeds:
                self.fed.setdefault(feed.child, {})[feed.stripe] = feed.parent

    def moving(self) -> None:
        """Says what has changed."""
        if not self.what or self._plan is None:
            return
        stuck = [
            name
            for name, member in self.members.items()
            if member.error is None and member.is_stuck
        ]
        fields = self._fields("moving", stuck)
        if fields != self._said:
            self._said = fields
            emit_broadcast(self.emit, fields)

    def done(self, sent_bytes: int) -> None:
        """`sent_bytes`: by this machine. Nothing is said where all was there already."""
        whole = {
            name: member
            for name, member in self.members.items()
            if member.complete and member.error is None
        }
        received = [
            min(member.received_bytes, member.total_bytes)
            for member in whole.values()
            if member.received_bytes
        ]
        if not self.what or not received:
            return
        fields = self._fields("done", [])
        fields["hosts"], fields["total_bytes"], fields["sent_bytes"] = (
            len(received),
            max(received),
            sent_bytes,
        )
        fields["seconds"], fields["slowest"] = (
            time.monotonic() - self._began,
            slowest_link(whole, self.fed),
        )
        emit_broadcast(self.emit, fields)

    def _fields(self, state: str, stuck: list[str]) -> BroadcastFields:
        plan = self._plan
        feeds = [
            (parent, child, stripe)
            for child, each in self.fed.items()
            for stripe, parent in sorted(each.items())
        ]
        stripes, slow = (plan.stripes, sorted(plan.slow)) if plan else (1, [])
        return {
            "what": self.what,
            "state": state,
            "stripes": stripes,
            "feeds": feeds,
            "slow": slow,
            "stuck": stuck,
        }


def slowest_link(members: Mapping[str, MemberSession], fed: Fed) -> SlowestLink | None:
    """By what each host received in its best seconds; of links that are alike the one nearest to
    the source."""
    rates = {name: member.best_rate for name, member in members.items() if member.best_rate}
    if not rates:
        return None
    least = min(rates.values())
    alike = [name for name, rate in rates.items() if rate <= ALIKE * least]
    depths = _depths(fed)
    host = min(alike, key=lambda name: (depths.get(name, len(depths)), rates[name]))
    return {"host": host, "parents": sorted({*fed.get(host, {}).values()}), "rate": rates[host]}


def _depths(fed: Fed) -> dict[str, int]:
    """How many hosts the pieces of each host pass before it, at the least."""
    level = [host for host, parents in fed.items() if not parents or "" in parents.values()]
    children: dict[str, list[str]] = {}
    for child, parents in fed.items():
        for parent in parents.values():
            children.setdefault(parent, []).append(child)
    level += [parent for parent in children if parent and parent not in fed]
    depths = dict.fromkeys(level, 0)
    for host in level:  # it grows meanwhile
        new = [child for child in children.get(host, ()) if child not in depths]
        depths.update(dict.fromkeys(new, depths[host] + 1))
        level += new
    return depths
