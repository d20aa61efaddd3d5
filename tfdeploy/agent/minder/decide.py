"""Decide when the run starts and ends on this host. The input is the plan for this host, the shared
state, the tasks of this host and the time. The output is actions.

The functions here read no clock and no file, so that a test of a rule is one row of a table.
restart.py decides which tasks restart.
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
    AnnounceCommit,
    EndTask,
    EnterPhase,
    HostRunView,
    LocalTask,
    ReapTask,
    StartTask,
)

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Abort

STOPPED_BY_OPERATOR = "stopped by an operator"
DECIDED = "the deciding task succeeded"
NO_ANSWER = (
    "all processes of the run on a host had died, and for a day no other host answered that host"
)
# If all processes of the run on a host have died, the other hosts may have ended the run meanwhile.
# So the host's next minder starts nothing until another host answers. After this many seconds
# without an answer, it ends the run.
REJOIN_S = 86400.0


def decide(view: HostRunView) -> List[Action]:
    """Return the actions that the minder must take now. The minder calls this after each change,
    and also regularly."""
    if view.phase == "ended":
        return []
    conclusions = _decide_commit_or_abort(view)
    if conclusions:
        return conclusions
    reaping: List[Action] = [
        _make_reap_action(view, own) for own in view.local_tasks.values() if _is_orphaned(own)
    ]
    # The other actions follow in the same step: a task that cannot be killed must not delay them.
    return reaping + _decide_by_phase(view)


def _decide_by_phase(view: HostRunView) -> List[Action]:
    if view.known.abort is not None:
        return _end_aborted_run(view, view.known.abort)
    if view.phase == "prepared":
        return (
            [EnterPhase("started"), *(StartTask(task) for task in view.local_tasks)]
            if "start" in view.orders
            else []
        )
    if view.phase == "committed" and _are_all_tasks_finished(view):
        return [EnterPhase("ended")]
    if view.rejoining:
        # The other hosts may have ended the run meanwhile. So nothing starts until one of them
        # answers.
        return [AbortRun("abort", NO_ANSWER)] if view.seconds_since("back") >= REJOIN_S else []
    number = view.known.round_number
    actions: List[Action] = [
        StartTask(task, next_attempt(view.known, task), number)
        for task, own in view.local_tasks.items()
        if own.status.state == "pending" and not own.is_supervised
    ]
    if view.phase != "committed":
        return actions
    return (
        actions
        + unminded.decide_unminded_reports(view)
        + restart.decide_restart_actions(view)
        + _end_tasks_after_success(view)
    )


def _decide_commit_or_abort(view: HostRunView) -> List[Action]:
    """Return the actions that commit or end the run, or [] if neither is due. Such an action tells
    the decision and its reason to all hosts, because the other hosts may not know the reason."""
    part, orders, known = view.part, view.orders, view.known
    if known.abort is not None:
        return []
    if "stop" in orders:
        return [AbortRun("stop", STOPPED_BY_OPERATOR, orders["stop"].get("grace_s"))]
    if "abort" in orders:
        return [AbortRun("abort", orders["abort"].get("reason") or "rolled back")]
    death = first_fatal_death(part.peers, known)
    if death is not None:
        return [AbortRun("failed", describe_death(death))]
    if (
        view.phase == "prepared"
        and "start" not in orders
        and view.seconds_since("prepared") >= part.start_within_s
    ):
        return [
            AbortRun(
                "abort", "the run was prepared, but not started within %g s" % part.start_within_s
            )
        ]
    if view.phase == "started":
        if known.committed or "commit" in orders:
            return [AnnounceCommit(), EnterPhase("committed")]
        if view.seconds_since("started") >= part.commit_within_s:
            return [
                AbortRun(
                    "abort",
                    "the run was started, but its launch was not confirmed within %g s"
                    % part.commit_within_s,
                )
            ]
    return []


def _is_orphaned(own: LocalTask) -> bool:
    return own.status.state in ("starting", "running") and not own.is_supervised


def _make_reap_action(view: HostRunView, own: LocalTask) -> ReapTask:
    task, which = own.status.task, (max(1, own.status.attempt), own.status.round)
    if view.was_started_before_boot(own.status):
        return ReapTask(task, "lost", "host rebooted", *which)
    if view.known.abort is not None:
        return ReapTask(task, "stopped", view.known.abort["reason"], *which)
    return ReapTask(task, "lost", "its supervisor was killed", *which)


def _have_all_tasks_ended(view: HostRunView) -> bool:
    return all(own.has_ended for own in view.local_tasks.values())


def _are_all_tasks_finished(view: HostRunView) -> bool:
    """Return True if all tasks of this host have ended and none of them will restart."""
    if not _have_all_tasks_ended(view):
        return False
    if run_success_time(view.part.peers, view.known) is not None:
        return True
    last = all(_has_ended_for_good(view, task) for task in view.local_tasks)
    return (last or view.part.restart_max == 0) and not restart.may_gang_restart(view)


def _end_aborted_run(view: HostRunView, abort: Abort) -> List[Action]:
    if _have_all_tasks_ended(view):
        return [EnterPhase("ended")]
    # If an operator stops a run that is already ending, the shorter of the two grace times applies.
    graces = [abort.get("grace_s"), view.orders.get("stop", {}).get("grace_s")]
    grace_s = min((grace for grace in graces if grace is not None), default=view.part.stop_grace_s)
    actions: List[Action] = [] if view.phase == "ending" else [EnterPhase("ending")]
    for task, own in view.local_tasks.items():
        if own.status.state == "pending" and not own.is_supervised:
            actions.append(ReapTask(task, "stopped", abort["reason"]))
        elif own.status.state != "pending" and own.is_supervised:
            actions.append(EndTask(task, abort["reason"], grace_s))
    return actions


def _end_tasks_after_success(view: HostRunView) -> List[Action]:
    """Return the actions that end the remaining tasks of this host, once the run has succeeded.
    Servers are ended after all other tasks of the run. Any other task is ended when
    `finish_grace_s` seconds have passed since the success and since the last line that the task has
    logged."""
    part = view.part
    if run_success_time(part.peers, view.known) is None:
        return []
    actions: List[Action] = []
    waited = view.seconds_since("decided")
    done = all(_counts_as_ended(view, peer, waited) for peer in part.peers if not is_server(peer))
    for spec in part.tasks:
        own = view.local_tasks[spec.task]
        if own.has_ended:
            continue
        # A task that waits for a task that has ended for good is ended at once: its TensorFlow
        # session can never start.
        is_due = min(waited, own.quiet_s) >= part.finish_grace_s or any(
            _has_ended_for_good(view, task) for task in own.awaited_tasks
        )
        if done if is_server(spec) else is_due:
            actions.append(EndTask(spec.task, DECIDED, part.stop_grace_s))
    return actions


def _counts_as_ended(view: HostRunView, peer: wire.Peer, waited_s: float) -> bool:
    """Return True if the task `peer` has ended for good. A task of another host also counts as
    ended if that host has been silent for so long that the task must be over by now."""
    longest_s = view.part.finish_grace_s + view.part.stop_grace_s
    return _has_ended_for_good(view, peer.task) or (
        peer.task not in view.local_tasks
        and min(waited_s, view.silence_s_by_host.get(peer.host, 0.0)) >= longest_s
    )


def _has_ended_for_good(view: HostRunView, task: str) -> bool:
    ending = view.known.ended.get(task)
    return ending is not None and is_final(ending)
