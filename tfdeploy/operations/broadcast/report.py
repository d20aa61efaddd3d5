"""Report which host sends to which in a broadcast, how fast it is, and which link is slowest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfdeploy.model.events import BroadcastFields, Emit, SlowestLink
from tfdeploy.operations.broadcast.member_session import MemberSession
from tfdeploy.operations.emit import emit_broadcast
from tfdeploy.planning.broadcast.feeds import FeedPlan
from tfdeploy.text.names import group_by_key

# Links count as equally slow if their rates differ by at most this factor. The first slow link of a
# chain slows down all links after it.
ALIKE = 1.05

ParentsByStripe = dict[str, dict[int, str]]  # {child: {stripe: parent}}


@dataclass
class BroadcastReport:
    """Emits the progress of one broadcast. `event_name` is its name in events; "" for no events."""

    event_name: str
    members: Mapping[str, MemberSession]
    emit: Emit
    # The host that was last to send each stripe to each host. Kept after the broadcast has ended.
    last_parents: ParentsByStripe = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _plan: FeedPlan | None = None
    _last_emitted: BroadcastFields | None = None

    def record_plan(self, plan: FeedPlan) -> None:
        self._plan = plan
        for feed in plan.feeds:
            self.last_parents.setdefault(feed.child, {})[feed.stripe] = feed.parent

    def emit_changes(self) -> None:
        """Emit who sends to whom and which hosts are stuck, if that has changed."""
        if not self.event_name or self._plan is None:
            return
        members = self.members.items()
        stuck = [name for name, member in members if member.error is None and member.is_stuck]
        fields = self._event_fields("moving", stuck)
        if fields != self._last_emitted:
            self._last_emitted = fields
            emit_broadcast(self.emit, fields)

    def emit_end(self, sent_bytes: int) -> None:
        """Emit the end of the broadcast if at least one host has received files.

        `sent_bytes`: the bytes that this machine has sent.
        """
        complete = {
            name: member
            for name, member in self.members.items()
            if member.is_complete and member.error is None
        }
        received = [
            min(member.received_bytes, member.total_bytes)
            for member in complete.values()
            if member.received_bytes
        ]
        if not self.event_name or not received:
            return
        fields = self._event_fields("done", [])
        fields["hosts"], fields["total_bytes"] = len(received), max(received)
        fields["sent_bytes"], fields["seconds"] = sent_bytes, time.monotonic() - self._began
        fields["slowest"] = slowest_link(complete, self.last_parents)
        emit_broadcast(self.emit, fields)

    def _event_fields(self, state: str, stuck: list[str]) -> BroadcastFields:
        plan = self._plan
        feeds = [
            (parent, child, stripe)
            for child, each in self.last_parents.items()
            for stripe, parent in sorted(each.items())
        ]
        stripes, slow = (plan.stripes, sorted(plan.slow_hosts)) if plan else (1, [])
        return {
            "what": self.event_name,
            "state": state,
            "stripes": stripes,
            "feeds": feeds,
            "slow": slow,
            "stuck": stuck,
        }


def slowest_link(
    members: Mapping[str, MemberSession], last_parents: ParentsByStripe
) -> SlowestLink | None:
    """Return the link to the host that received most slowly; None if no rate is known.

    Hosts are compared by the best rate at which each of them has received. If several hosts are
    equally slow, the link to the host nearest to the source is returned.
    """
    rates = {name: member.best_rate for name, member in members.items() if member.best_rate}
    if not rates:
        return None
    least = min(rates.values())
    alike = [name for name, rate in rates.items() if rate <= ALIKE * least]
    depths = _chain_depths(last_parents)
    host = min(alike, key=lambda name: (depths.get(name, len(depths)), rates[name]))
    return {
        "host": host,
        "parents": sorted({*last_parents.get(host, {}).values()}),
        "rate": rates[host],
    }


def _chain_depths(last_parents: ParentsByStripe) -> dict[str, int]:
    """Return {host: the number of hosts that pieces pass on the shortest way to this host}."""
    level = [
        host for host, parents in last_parents.items() if not parents or "" in parents.values()
    ]
    children = group_by_key(
        (parent, child) for child, parents in last_parents.items() for parent in parents.values()
    )
    level += [parent for parent in children if parent and parent not in last_parents]
    depths = dict.fromkeys(level, 0)
    # The loop appends to the list that it iterates over: a breadth-first search.
    for host in level:
        new = [child for child in children.get(host, ()) if child not in depths]
        depths.update(dict.fromkeys(new, depths[host] + 1))
        level += new
    return depths
