"""Decide which tasks restart, and in which order the tasks of a gang restart (the tasks that must
restart together). The input is the plan for this host, the shared state, the tasks of this host and
the time. The output is actions. The functions have no side effects.

`decide_restart` alone decides whether and when a task restarts.

A task restarts alone on its host after a pause, unless its death restarts the gang. That is so if
the plan says it of this task (`Peer.on_death`), or if another task of its gang has finished for
good. All tasks of the gang then restart together, in a new round, which is a start of the gang:

1. One minder (the agent's daemon on a host) announces the round.
2. Every host ends its tasks of the old round and reports the stage CLEARED.
3. After all hosts have reported CLEARED, each of them fetches the `keep` folders of the chief's
   host and reports SUPPLIED.
4. After a pause, the servers of this host start.
5. After all hosts have reported that their servers are up (SERVED), the other tasks start.

So no process of the new round meets a process of the old round.
"""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Optional
from tfdeploy.agent.mesh.shared_state import (
    MAX_ROUND,
    MAX_TEXT,
    KnownRunState,
    describe_death,
    is_final,
    is_from_earlier_round,
    is_premature_success,
    is_server,
    make_death,
    make_ending,
    next_capped_count,
    run_success_time,
)
from tfdeploy.agent.minder.actions import (
    Action,
    AnnounceRound,
    EndTask,
    FetchKeepFolders,
    GiveUpTask,
    HostRunView,
    LocalTask,
    ReportStage,
    StartTask,
)
from tfdeploy.agent.minder.unminded import unminded_hosts
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import FailedStarts, GangRound, RestartCount

# If an attempt lasted fewer seconds than this, the pause before the next attempt is doubled.
QUICK_S = 10.0
# If an attempt lasted at least this many seconds, the count of failed starts begins again at zero.
REFILL_S = 600.0
# The stages of a host in a restart of the gang. CLEARED: the host's old tasks have ended. SUPPLIED:
# the host has the `keep` folders. SERVED: the host's servers are up.
CLEARED, SUPPLIED, SERVED = 1, 2, 3
# If a task is ended because another task of its gang has died, it has at most this many seconds
# between SIGTERM and SIGKILL.
GANG_GRACE_S = 5.0
# A program that does not set SO_REUSEADDR gets "Address already in use" for up to 60 s (a constant
# of Linux) after the last connection to its port has closed. So the pause before the next attempt
# is at least that long. This error does not count as repeated, because it goes away.
_ADDRESS_IN_USE, TIME_WAIT_S = "ddress already in use", 60.0
# A task gives up after this many attempts in a row that ended with the same error before their
# first step. One more attempt would end in the same way.
SAME_ERRORS = 2


# What can follow an attempt that has ended. A gang is the tasks that restart together.
LAST = "last"  # no restart, because the task has finished or has failed for good
RUN_OVER = "run over"  # no restart, because the run has ended
GANG = "gang"  # all tasks of the gang restart, including this task
# No restart, because the task has used up its restarts or would fail in the same way again.
GIVE_UP = "give up"
AT = "at"  # the task restarts later
NOW = "now"  # the task restarts now


class RestartDecision(NamedTuple):
    """What follows an attempt that has ended. `kind` is one of the constants above, such as AT.

    `reason`: how the attempt ended. If `kind` is GIVE_UP, it also says why the task does not
    restart.
    `earliest_time`: only if `kind` is AT. The task must not restart earlier (monotonic seconds).
    `round`: only if `kind` is GANG. The number of the round in which all tasks of the gang restart:
    the next round, or the current one if it has begun because of another task's end.
    """

    kind: str
    reason: str = ""
    earliest_time: float = 0.0
    round: int = 0

    @property
    def is_final(self) -> bool:
        return self.kind in (LAST, RUN_OVER)


def decide_restart(
    part: wire.HostPart,
    peer: wire.Peer,
    known: KnownRunState,
    status: wire.TaskStatus,
    restart_count: Optional[RestartCount] = None,
    now: float = 0.0,
    not_before: float = 0.0,
) -> RestartDecision:
    """Return what follows the attempt that ended with `status`.

    `restart_count`: how many starts of the task have failed, this attempt included. None if this
    attempt is not counted yet.
    `not_before`: the task must not restart earlier.
    `now` and `not_before` are monotonic seconds.
    """
    how, number = describe_ending(status), known.round_number
    if not _will_restart(part, peer, known, status):
        return RestartDecision(LAST, how)
    if known.abort is not None or run_success_time(part.peers, known) is not None:
        return RestartDecision(RUN_OVER, how)
    if peer.gang and status.round < number:
        return RestartDecision(GANG, how, round=number)
    first = restart_count.get("first", how) if restart_count else how
    before = "" if how in first else "; the first death: %s" % first
    if restart_count is not None and restart_count["count"] > part.restart_max:
        restarts = "%d restart%s" % (part.restart_max, "s" * (part.restart_max != 1))
        return RestartDecision(GIVE_UP, "%s, after %s (restart.max)%s" % (how, restarts, before))
    if (
        part.same_error_ends
        and restart_count is not None
        and restart_count.get("same", 0) >= SAME_ERRORS
    ):
        same = "attempts %d and %d failed with the same error before their first step: %s%s"
        reason = same % (status.attempt - 1, status.attempt, how, before)
        return RestartDecision(GIVE_UP, reason)
    if peer.on_death == "gang" or _has_other_gang_member_succeeded(part, known, peer):
        if number >= MAX_ROUND:
            return RestartDecision(
                GIVE_UP,
                "%s, and a group of tasks restarts together at most %d times" % (how, MAX_ROUND),
            )
        return RestartDecision(GANG, how, round=number + 1)
    return (
        RestartDecision(AT, how, earliest_time=not_before)
        if now < not_before
        else RestartDecision(NOW, how)
    )


def _will_restart(
    part: wire.HostPart, peer: wire.Peer, known: KnownRunState, status: wire.TaskStatus
) -> bool:
    """Return True if this attempt is followed by another one. The end of the run, which may come
    first, is not considered here."""
    if not known.committed or not _can_restart(part, peer):
        return False
    if peer.gang and status.round < known.round_number:
        return True
    return status.outcome != "gave_up" and (
        status.outcome != "succeeded" or is_premature_success(peer, make_ending(status))
    )


def _can_restart(part: wire.HostPart, peer: wire.Peer) -> bool:
    return part.restart_max > 0 and peer.on_death != ""


def _has_other_gang_member_succeeded(
    part: wire.HostPart, known: KnownRunState, peer: wire.Peer
) -> bool:
    """Return True if another task of the gang has succeeded and will not run again. `peer` then
    cannot restart alone, because its TensorFlow session would wait for that other task for ever.
    Return False if `peer` is in no gang."""
    endings = [
        (each, known.ended[each.task])
        for each in part.peers
        if each.gang and each.task != peer.task and each.task in known.ended
    ]
    return peer.gang and any(
        ending["outcome"] == "succeeded"
        and is_final(ending)
        and not is_from_earlier_round(each, ending, known)
        for each, ending in endings
    )


def describe_ending(status: wire.TaskStatus) -> str:
    """Return how the attempt ended, in a few words."""
    return wire.summarize_ending(status.outcome, status.exit_code, status.signal, status.reason)


def count_death(
    part: wire.HostPart,
    peer: wire.Peer,
    known: KnownRunState,
    previous_count: Optional[RestartCount],
    status: wire.TaskStatus,
    jitter: float = 0.0,
) -> RestartCount:
    """Return the count of failed starts, including the attempt that `status` describes.
    `previous_count`: the task's count so far. If it includes this attempt already, it is returned
    unchanged."""
    if previous_count is not None and previous_count["attempt"] == status.attempt:
        return previous_count
    failures = failed_starts_before(peer, known, previous_count, status.attempt)
    return count_failure(failures, status, part.restart_backoff_s, jitter)


def failed_starts_before(
    peer: wire.Peer, known: KnownRunState, previous_count: Optional[RestartCount], attempt: int
) -> Optional[FailedStarts]:
    """Return the count of failed starts before `attempt`. If the death of this task restarts the
    gang, this is the count of the whole gang. Otherwise it is the task's own count
    (`previous_count`).

    If there were attempts between the last counted one and `attempt`, the result has no error to
    which the error of `attempt` could be equal. These attempts were not counted: they may have
    worked, and ended only because another task died. So an equal error is no repetition.
    """
    if peer.on_death == "gang":
        return known.round
    if previous_count is None or previous_count["attempt"] == attempt - 1:
        return previous_count
    names = ("count", "quick", "delay_s", "first")
    return {name: value for name, value in previous_count.items() if name in names}  # type: ignore[return-value]


def count_failure(
    previous_count: Optional[FailedStarts],
    status: wire.TaskStatus,
    backoff_s: List[float],
    jitter: float,
) -> RestartCount:
    """Return the new count of failed starts after an attempt has ended with `status`.
    `previous_count`: the count before that. `jitter`: a random number from 0 to 1, which makes the
    pauses of different tasks differ.

    Tasks that restart together share one count, because they run the same program. So an error
    counts as repeated even if it first occurred in another of these tasks.
    """
    lived_s = status.lived_s or 0.0
    count, quick = (
        (0, 0) if previous_count is None else (previous_count["count"], previous_count["quick"])
    )
    if lived_s >= REFILL_S:
        count = 0
    quick = next_capped_count(quick) if lived_s < QUICK_S else 0
    first_s, longest_s = backoff_s
    pause_s = min(first_s * 2.0 ** min(max(quick - 1, 0), 40), longest_s)
    error = status.error or ""
    delay_s = round(pause_s * (0.75 + 0.25 * jitter), 3)
    if _ADDRESS_IN_USE in error:
        error, delay_s = "", max(delay_s, TIME_WAIT_S)
    how = describe_ending(status)[:MAX_TEXT]
    counted: RestartCount = {
        "attempt": status.attempt,
        "round": status.round,
        "how": how,
        "first": previous_count.get("first", how) if previous_count and count else how,
        "count": next_capped_count(count),
        "quick": quick,
        "delay_s": delay_s,
    }
    if error:
        error = counted["error"] = error[:MAX_TEXT]
        counted["same"] = next_capped_count(
            previous_count.get("same", 0)
            if previous_count and previous_count.get("error") == error
            else 0
        )
    return counted


def make_gang_round(
    action: AnnounceRound, status: wire.TaskStatus, restart_count: RestartCount
) -> GangRound:
    """Return the next round of the gang. A round is a start of all tasks that restart together. Its
    cause is the death of the task `action.task`, which `status` describes. `restart_count`: the
    count of failed starts, including this death."""
    death = make_death(make_ending(status), action.task, status.host)
    reason = describe_death(death)[:MAX_TEXT]
    names = ("count", "quick", "delay_s", "error", "same")
    return {
        "n": action.round_number,
        "time": death["time"],
        "task": action.task,
        "reason": reason,
        "first": reason if restart_count["count"] == 1 else restart_count.get("first", reason),
        **{name: value for name, value in restart_count.items() if name in names},  # type: ignore[typeddict-item]
    }


def decide_restart_actions(view: HostRunView) -> List[Action]:
    """Return the actions that restart or end tasks of this host. Some actions only report which
    stage this host has reached in a restart of the gang (the tasks that restart together). The run
    must be committed. Return [] if the run has succeeded."""
    if run_success_time(view.part.peers, view.known) is not None:
        return []
    actions: List[Action] = []
    grace_s = min(view.part.stop_grace_s, GANG_GRACE_S)
    for peer in _peers_on_own_host(view):
        own = view.local_tasks[peer.task]
        if peer.gang and own.status.round < view.known.round_number:
            if own.status.state not in wire.OVER:
                actions.append(EndTask(peer.task, _describe_gang_restart(view), grace_s))
        elif own.has_ended:
            actions += _decide_after_death(view, peer, own)
    return actions + _decide_next_gang_restart_actions(view)


def may_gang_restart(view: HostRunView) -> bool:
    """Return True if this host has a task of the gang (the tasks that restart together) that may
    restart. The gang may then need this host again, even if all tasks of this host have ended."""
    return any(peer.gang and _can_restart(view.part, peer) for peer in _peers_on_own_host(view))


def _peers_on_own_host(view: HostRunView) -> List[wire.Peer]:
    """Return the tasks that run on this host."""
    peers = {peer.task: peer for peer in view.part.peers}
    return [peers[spec.task] for spec in view.part.tasks if spec.task in peers]


def _decide_after_death(view: HostRunView, peer: wire.Peer, own: LocalTask) -> List[Action]:
    count = view.restart_counts.get(peer.task)
    if count is None or count["attempt"] != own.status.attempt:
        return []
    not_before = view.time_by_event.get("again " + peer.task, 0.0)
    following = decide_restart(view.part, peer, view.known, own.status, count, view.now, not_before)
    if following.kind == GIVE_UP:
        return [GiveUpTask(peer.task, following.reason)]
    if following.kind == GANG:
        return [AnnounceRound(following.round, peer.task)]
    if following.kind == NOW:
        return [StartTask(peer.task, own.status.attempt + 1, view.known.round_number)]
    return []


def _describe_gang_restart(view: HostRunView) -> str:
    return "all tasks that restart together start again: %s" % (
        "" if view.known.round is None else view.known.round.get("reason", "")
    )


def _decide_next_gang_restart_actions(view: HostRunView) -> List[Action]:
    """Return the actions by which this host continues the restart of the gang (the tasks that
    restart together). Return [] if there is no such restart, or if this host must wait."""
    part, number = view.part, view.known.round_number
    members = [
        (peer, view.local_tasks[peer.task]) for peer in _peers_on_own_host(view) if peer.gang
    ]
    if number == 1 or not members:
        return []
    mine = _gang_stage(view, part.host)
    slowest = min(_gang_stage(view, peer.host) for peer in part.peers if peer.gang)
    if mine < CLEARED:
        is_cleared = all(own.status.round >= number or own.has_ended for _, own in members)
        return [ReportStage(number, CLEARED)] if is_cleared else []
    if mine < SUPPLIED:
        if slowest < CLEARED:
            return []
        needs = part.supply_from not in (None, part.host) and view.fetched_keep_round < number
        return [FetchKeepFolders(number)] if needs else [ReportStage(number, SUPPLIED)]
    servers = [own.status for peer, own in members if is_server(peer)]
    if mine < SERVED and all(
        status.round >= number and (status.up or status.state in wire.OVER) for status in servers
    ):
        return [ReportStage(number, SERVED)]
    if view.now < view.time_by_event.get("round %d" % number, 0.0):
        return []
    # Servers start now: all hosts are CLEARED, and this host is SUPPLIED. The other tasks start
    # after all hosts have reported SERVED.
    return [
        StartTask(peer.task, own.status.attempt + 1, number)
        for peer, own in members
        if slowest >= (CLEARED if is_server(peer) else SERVED)
        and own.status.round < number
        and own.has_ended
    ]


def _gang_stage(view: HostRunView, host: str) -> int:
    """Return which stage the host has reached in the current restart of the gang (the tasks that
    restart together): CLEARED, SUPPLIED or SERVED. Return 0 if it has reached none of them."""
    number = view.known.round_number
    at, stage = view.known.stands.get(host, (1, SERVED))
    return stage if at == number else SERVED if at > number else 0


def restart_reasons(view: HostRunView) -> Dict[str, str]:
    """Return {task: why it will restart} for the tasks of this host that will restart soon."""
    reason_by_task: Dict[str, str] = {}
    if view.phase != "committed" or view.known.abort is not None:
        return reason_by_task
    for peer in _peers_on_own_host(view):
        status = view.local_tasks[peer.task].status
        if status.state not in wire.OVER:
            continue
        count = count_death(view.part, peer, view.known, view.restart_counts.get(peer.task), status)
        following = decide_restart(view.part, peer, view.known, status, count)
        if following.is_final or following.kind == GIVE_UP:
            continue
        when = " as soon as another host of the run answers" if view.rejoining else ""
        under_way = following.round == view.known.round_number
        reason_by_task[peer.task] = (
            _describe_gang_restart(view) + _describe_awaited_hosts(view)
            if under_way
            else "starts again%s: %s" % (when, following.reason)
        )
    return reason_by_task


def _describe_awaited_hosts(view: HostRunView) -> str:
    """Return a text about the hosts for which the restart of the gang still waits. Return "" if it
    waits for no host, or if this host itself has not ended its old tasks."""
    hosts = {peer.host for peer in view.part.peers if peer.gang}
    late = sorted(host for host in hosts if _gang_stage(view, host) < CLEARED)
    if view.part.host in late:
        return ""
    gone = ", ".join(host for host in late if host in unminded_hosts(view.known))
    if gone:
        return (
            "; no process manages the run on %s; the restart waits for a new process there, but no "
            "longer than restart.wait" % gone
        )
    return "; the restart waits until the old tasks on %s end" % ", ".join(late) if late else ""
