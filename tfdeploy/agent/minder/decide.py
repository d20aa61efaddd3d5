"""Decide when the run starts and ends on this host. The input is the plan for this host, the shared
state, the tasks of this host and the clock; the output is actions. Pure.

Decisions read no clock and no file, so each rule can be tested with one row of a table. Restarts of
tasks are decided in restart.py.
"""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, List
from tfdeploy.agent.mesh.shared_state import (
    describe_death,
    first_fatal_death,
    is_final,
    is_server,
    next_attempt,
    run_success_time,
)
from tfdeploy.agent.minder import restart, unminded
from tfdeploy.agent.minder.actions import (
    AbortRun,
    Action,
    Commit,
    EndTask,
    OwnTask,
    Phase,
    Reap,
    Start,
    View,
)

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Abort

STOPPED_BY_OPERATOR = "stopped by an operator"
DECIDED = "the deciding task succeeded"
NO_ANSWER = "a host lost all its processes of the run, and no other host answered it for a day"
# After all processes of the run on a host have died, this host waits at most this many seconds
# until another host answers.
REJOIN_S = 86400.0


def decide(view: View) -> List[Action]:
    """Return the actions to take now. Called after each change, and also regularly."""
    if view.phase == "ended":
        return []
    conclusions = _conclude_from_own_facts(view)
    if conclusions:
        return conclusions
    reaping: List[Action] = [_reap(view, own) for own in view.own.values() if _is_orphaned(own)]
    # Do not wait until the tasks of dead supervisors are reaped, because a task that cannot be
    # killed must not delay the others.
    return reaping + _after_reaping(view)


def _after_reaping(view: View) -> List[Action]:
    if view.known.abort is not None:
        return _end_all(view, view.known.abort)
    if view.phase == "prepared":
        return (
            [Phase("started"), *(Start(task) for task in view.own)]
            if "start" in view.control_words
            else []
        )
    if view.phase == "committed" and _is_all_over(view):
        return [Phase("ended")]
    if view.rejoining:
        # The run may be over. So nothing starts until another host has answered.
        return [AbortRun("abort", NO_ANSWER)] if _seconds_since(view, "back") >= REJOIN_S else []
    number = view.known.round_number
    actions: List[Action] = [
        Start(task, next_attempt(view.known, task), number)
        for task, own in view.own.items()
        if own.status.state == "pending" and not own.supervised
    ]
    if view.phase != "committed":
        return actions
    return (
        actions
        + unminded.report_unminded(view)
        + restart.restart_tasks(view)
        + _end_undecided_tasks(view)
    )


def _conclude_from_own_facts(view: View) -> List[Action]:
    """Return the actions that commit or end the run because of facts that perhaps only this host
    knows. When the actions are carried out, the other hosts are told."""
    part, control_words, known = view.part, view.control_words, view.known
    if known.abort is not None:
        return []
    if "stop" in control_words:
        return [AbortRun("stop", STOPPED_BY_OPERATOR, control_words["stop"].get("grace_s"))]
    if "abort" in control_words:
        return [AbortRun("abort", control_words["abort"].get("reason") or "rolled back")]
    death = first_fatal_death(part.peers, known)
    if death is not None:
        return [AbortRun("failed", describe_death(death))]
    if (
        view.phase == "prepared"
        and "start" not in control_words
        and _seconds_since(view, "prepared") >= part.start_within_s
    ):
        return [
            AbortRun(
                "abort", "the run was prepared, but not started within %g s" % part.start_within_s
            )
        ]
    if view.phase == "started":
        if known.committed or "commit" in control_words:
            return [Commit(), Phase("committed")]
        if _seconds_since(view, "started") >= part.commit_within_s:
            return [
                AbortRun(
                    "abort",
                    "the run was started, but its launch was not confirmed within %g s"
                    % part.commit_within_s,
                )
            ]
    return []


def _seconds_since(view: View, mark: str) -> float:
    return view.now - view.marks.get(mark, view.now)


def _is_orphaned(own: OwnTask) -> bool:
    return own.status.state in ("starting", "running") and not own.supervised


def _reap(view: View, own: OwnTask) -> Reap:
    task, which = own.status.task, (max(1, own.status.attempt), own.status.round)
    if view.rebooted(own.status):
        return Reap(task, "lost", "host rebooted", *which)
    if view.known.abort is not None:
        return Reap(task, "stopped", view.known.abort["reason"], *which)
    return Reap(task, "lost", "its supervisor was killed", *which)


def _have_all_ended(view: View) -> bool:
    return all(own.has_ended for own in view.own.values())


def _is_all_over(view: View) -> bool:
    """Return True if all tasks of this host have ended and none of them will restart."""
    if not _have_all_ended(view):
        return False
    if run_success_time(view.part.peers, view.known) is not None:
        return True
    last = all(_has_ended_for_good(view, task) for task in view.own)
    return (last or view.part.restart_max == 0) and not restart.waits_for_gang(view)


def _end_all(view: View, abort: Abort) -> List[Action]:
    if _have_all_ended(view):
        return [Phase("ended")]
    # A stop that comes later may shorten the grace time.
    graces = [abort.get("grace_s"), view.control_words.get("stop", {}).get("grace_s")]
    grace_s = min((grace for grace in graces if grace is not None), default=view.part.stop_grace_s)
    actions: List[Action] = [] if view.phase == "ending" else [Phase("ending")]
    for task, own in view.own.items():
        if own.status.state == "pending" and not own.supervised:
            actions.append(Reap(task, "stopped", abort["reason"]))
        elif own.status.state != "pending" and own.supervised:
            actions.append(EndTask(task, abort["reason"], grace_s))
    return actions


def _end_undecided_tasks(view: View) -> List[Action]:
    """Return the actions that end the remaining tasks of this host after the run has succeeded. A
    task that is no server is ended once its grace time has passed. Servers are ended after all
    other tasks of the run."""
    part = view.part
    if run_success_time(part.peers, view.known) is None:
        return []
    actions: List[Action] = []
    waited = _seconds_since(view, "decided")
    done = all(_has_task_ended(view, peer, waited) for peer in part.peers if not is_server(peer))
    for spec in part.tasks:
        own = view.own[spec.task]
        if own.has_ended:
            continue
        # A task is also ended if it waits for a task that has ended for good, because its
        # TensorFlow session can never start.
        is_due = min(waited, own.quiet_s) >= part.finish_grace_s or any(
            _has_ended_for_good(view, task) for task in own.waits
        )
        if done if is_server(spec) else is_due:
            actions.append(EndTask(spec.task, DECIDED, part.stop_grace_s))
    return actions


def _has_task_ended(view: View, peer: wire.Peer, waited_s: float) -> bool:
    """Return True if the task `peer` has ended. A task of another host also counts as ended if that
    host has been silent for longer than it can take to end the task."""
    longest_s = view.part.finish_grace_s + view.part.stop_grace_s
    return _has_ended_for_good(view, peer.task) or (
        peer.task not in view.own
        and min(waited_s, view.silence_s_by_host.get(peer.host, 0.0)) >= longest_s
    )


def _has_ended_for_good(view: View, task: str) -> bool:
    ending = view.known.ended.get(task)
    return ending is not None and is_final(ending)
