"""Detect hosts on which the run no longer has a minder (the agent's daemon for the run on a host).
Either all processes of the agent were killed there, or the host was rebooted. The functions have no
side effects.

A host without a minder refuses connections to the mesh's port. A host that does not answer at all
is only cut off from the network, and its tasks continue. When a host has lost its minder, the other
hosts report this to each other. When it has a minder again, it reports this itself. If a host has
no minder for the time `restart.wait`, its tasks count as lost. Otherwise the gang (the tasks that
restart together) would wait for ever.
"""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Union
from tfdeploy.agent.mesh.shared_state import (
    MAX_ROUND,
    KnownRunState,
    is_final,
    is_from_earlier_round,
    next_attempt,
    run_success_time,
)
from tfdeploy.agent.minder.actions import Action, HostRunView, ReportMinderChange, ReportTasksLost

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Ending

NO_MINDER = "no process manages the task"


def decide_unminded_reports(view: HostRunView) -> List[Action]:
    """Return reports about other hosts whose minder (the agent's daemon for the run) has died or
    has been missing for too long, and a report that this host has a minder again. Return [] if the
    run is aborted or has succeeded."""
    part, known = view.part, view.known
    if known.abort is not None or run_success_time(part.peers, known) is not None:
        return []
    actions: List[Action] = []
    for host in sorted(
        {peer.host for peer in part.peers if _has_no_final_ending(peer, known)} | {part.host}
    ):
        number, refused_s = (
            known.unminded.get(host, (0, 0.0))[0],
            view.refusal_s_by_host.get(host, 0.0),
        )
        if host == part.host:
            actions += [ReportMinderChange(host, number + 1)] if number % 2 else []
        elif number % 2:
            waited = view.seconds_since(unminded_mark(host))
            actions += [ReportTasksLost(host)] if waited >= part.restart_wait_s else []
        elif refused_s >= part.unminded_after_s and number < MAX_ROUND:
            actions.append(ReportMinderChange(host, number + 1, refused_s))
    return actions


def unminded_mark(host: str) -> str:
    """Return the key under which HostRunState.marks stores the time at which this host learned that
    `host` has no minder (the agent's daemon for the run)."""
    return "unminded " + host


def unminded_hosts(known: KnownRunState) -> Dict[str, float]:
    """Return {host: since when it has had no minder}, in UTC seconds. Hosts with a minder are left
    out."""
    return {host: since for host, (number, since) in known.unminded.items() if number % 2}


def join_reported_facts(
    part: wire.HostPart,
    known: KnownRunState,
    action: Union[ReportMinderChange, ReportTasksLost],
    now: float,
) -> KnownRunState:
    """Return the shared state `known` together with the facts that `action` reports. `now`: UTC
    seconds."""
    if isinstance(action, ReportTasksLost):
        return known.join(KnownRunState(ended=make_lost_endings(part, known, action.host)))
    return known.join(
        KnownRunState(unminded={action.host: (action.change_count, now - action.without_minder_s)})
    )


def make_lost_endings(part: wire.HostPart, known: KnownRunState, host: str) -> Dict[str, Ending]:
    """Return {task: ending} with the outcome "lost", for the tasks of `host` that have no final
    ending. The ending is that of the attempt after the last one whose end is known, because that
    attempt may have begun."""
    since = known.unminded[host][1]
    reason = (
        "%s, and its host has refused connections to the run's port for all of restart.wait (%s)"
        % (
            NO_MINDER,
            _format_seconds(part.restart_wait_s),
        )
    )
    return {
        peer.task: {
            "attempt": next_attempt(known, peer.task),
            "round": known.round_number,
            "final": True,
            "outcome": "lost",
            "time": since,
            "host": host,
            "reason": reason,
        }
        for peer in part.peers
        if peer.host == host and _has_no_final_ending(peer, known)
    }


def _has_no_final_ending(peer: wire.Peer, known: KnownRunState) -> bool:
    fields = known.ended.get(peer.task)
    return fields is None or not is_final(fields) or is_from_earlier_round(peer, fields, known)


def _format_seconds(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return "%d %s" % (seconds // size, unit)
    return "%g s" % seconds
