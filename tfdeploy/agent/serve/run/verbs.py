"""Answers run.start, run.renew, run.commit, run.abort and run.stop. Each of them writes an order
for the run's minder process; all except run.renew wait for the effect.

If the minder is dead, run.abort and run.stop end the run themselves. Signals are sent only to
processes whose identity or environment shows that they belong to the run.
"""

from __future__ import annotations

import os
import signal
import time

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Callable, Dict, List
from tfdeploy.agent.errors import VerbError, is_safe_name
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.flock import FileLock, is_locked
from tfdeploy.agent.layout import HostPartMissing
from tfdeploy.agent.mesh.shared_state import make_ending
from tfdeploy.agent.minder import store
from tfdeploy.agent.minder.decide import STOPPED_BY_OPERATOR
from tfdeploy.agent.minder.supervisors import tell_supervisor_to_stop
from tfdeploy.agent.run import (
    clock,
    in_doubt,
    leftovers,
    liveness,
    old_secrets,
    reap,
    task_processes,
)
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.call import Call, Verb, audited
from tfdeploy.agent.serve.run import prepare_lock
from tfdeploy.agent.serve.run import status as run_status
from tfdeploy.agent.serve.run.prepare import prepare_run, remove_run_folder
from tfdeploy.agent.serve.run.watch import watch_run

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

ANSWER_WITHIN_S = 20.0  # a minder that does not answer in this time counts as failed
KILL_WITHIN_S = 8.0  # how long processes may live after SIGKILL
# On a busy host, a process that is ending shows neither arguments nor environment for a while, so
# it looks like an orphan. After this time, such a process counts as alive.
ENDING_S = 3.0
# How long the minder may take to record that all processes have ended. A full disk may prevent it
# from doing so.
SAVE_WITHIN_S = 1.0
FROZEN_AFTER_S = 3.0  # a minder that does not begin to end the run in this time counts as frozen
POLL_S = 0.05
STARTED = ("started", "committed", "ending", "ended")


def start_run(call: Call) -> Answer:
    """Start the tasks of a prepared run. A second call changes nothing.

    Args: run, job.

    Raises VerbError unknown_run, ended.
    """
    paths = run_status.named_run_paths(call)
    state = paths.state()
    if (
        state.phase == "ended"
        and state.started
        and not (state.abort_reason or state.stop_requested)
    ):
        return {}  # the run was started, and has already ended by itself
    refuse_if_ended(paths)
    # A repeated run.start restarts the time for which the minder waits for the commit.
    if paths.minder_order("start") is None or _phase(paths) == "started":
        paths.write_minder_order("start", time=time.time())
    _wait_until_reached(paths, lambda: _phase(paths) in STARTED and _have_all_tasks_begun(paths))
    refuse_if_ended(paths)
    return {}


def _have_all_tasks_begun(paths: RunPaths) -> bool:
    return _phase(paths) == "ended" or all(
        paths.status(spec.task).state != "pending" for spec in paths.part().tasks
    )


def record_launch_alive(call: Call) -> Answer:
    """Record that the launch is alive. The launch calls this every 15 s until it commits the run.
    Each call extends the time for which a prepared or started run waits for the launch.

    Args: run, job, plan_digest.

    Raises VerbError unknown_run (also if another plan prepared the run), ended.
    """
    paths = run_status.named_run_paths(call)
    if not _is_of_named_plan(call, paths):
        what = "run %s of this host was prepared by another launch" % paths.run
        raise VerbError("unknown_run", what)
    if not _is_committed(paths):
        refuse_if_ended(paths, refused_phases=("ending",))
        paths.write_minder_order("renew", time=time.time())
    return {}


def _is_of_named_plan(call: Call, paths: RunPaths) -> bool:
    """Return whether the run was prepared from the plan whose digest the call names. If the call
    names none, return True."""
    digest = paths.part().plan_digest
    return call.text("plan_digest", digest) == digest


@audited("launch", "committed")
def commit_run(call: Call) -> Answer:
    """Commit a started run, so that it continues without the launch. A second call changes nothing.

    Args: run, job.

    Raises VerbError unknown_run, ended (with the reason why the run ended).
    """
    paths = run_status.named_run_paths(call)
    if _is_committed(paths):
        return {}
    refuse_if_ended(paths)
    if _phase(paths) == "prepared" and paths.minder_order("start") is None:
        raise VerbError("not_started", "run %s was not started on this host" % paths.run)
    if paths.minder_order("commit") is None:
        paths.write_minder_order("commit", time=time.time())
    _wait_until_reached(paths, lambda: _is_committed(paths) or _phase(paths) in ("ending", "ended"))
    if not _is_committed(paths):
        refuse_if_ended(paths, refused_phases=("ending",))
    old_secrets.remove_other_runs_secrets(paths)
    return {}


def _is_committed(paths: RunPaths) -> bool:
    return paths.is_commit_recorded() and _phase(paths) != "started"


@audited("launch", "rolled back")
def abort_run(call: Call) -> Answer:
    """End a run on this host. With `purge`, also remove the run's folder once none of its processes
    is alive. A run that was prepared with another plan is left alone. If the run is being
    prepared, that is stopped first.

    Args: run, job, reason, purge, plan_digest.
    """
    _stop_preparing(call)
    try:
        paths = run_status.named_run_paths(call)
        if not _is_of_named_plan(call, paths):
            return {}
        reason = call.text("reason", "rolled back")
        if _phase(paths) != "ended" or _has_minder(paths):
            _write_end_order(paths, "abort", reason=reason)
        survivors = _wait_until_ended(paths, paths.part().stop_grace_s, reason)
    except (VerbError, HostPartMissing) as error:
        if isinstance(error, VerbError) and error.code != "unknown_run":
            raise
        return {}  # there is no such run, or its minder has removed it
    if call.flag("purge") and not survivors:
        remove_run_folder(paths)
    return {"survivors": survivors}


def _stop_preparing(call: Call) -> None:
    host, digest = call.text("host"), str(call.args.get("plan_digest"))
    if not is_safe_name(host):
        return  # an older control machine sends no host
    paths = RunPaths(layout.host_dir(call.workdir, call.job, call.name("run"), host))
    if in_doubt.is_in_doubt(paths):
        in_doubt.request_abort(paths, digest)
        with prepare_lock.hold(paths, digest):
            in_doubt.remove_abort_request(paths)


@audited("stop", "stopped")
def stop_run(call: Call) -> Answer:
    """End a run on this host: send TERM to all its processes, KILL after the grace time, and check
    that none is left. A minder or supervisor that is suspended is resumed, or killed. If the run's
    folder was removed, the processes that have the run's variables in their environment are ended.

    Args: run, job, grace_s.

    Raises VerbError unknown_run (there is no such run).
    """
    started_at, had_ended, has_minder = time.monotonic(), False, False
    grace_argument = call.number("grace_s")
    try:
        paths = run_status.named_run_paths(call)
    except VerbError as error:
        if error.code != "unknown_run":
            raise
        run, grace_s = call.name("run"), grace_argument or 0.0
        survivors = task_processes.end_leftover_processes(call.workdir, call.job, run, grace_s)
        if survivors is None:
            raise
    else:
        part = paths.part()
        tasks = [spec.task for spec in part.tasks]
        had_ended = (
            _phase(paths) == "ended" and not task_processes.find_task_processes(paths, tasks)[0]
        )
        grace_s = part.stop_grace_s if grace_argument is None else grace_argument
        if _phase(paths) != "ended" or _has_minder(paths):
            before = paths.minder_order("stop")
            if before is None or before.get("grace_s", grace_s) > grace_s:
                _write_end_order(paths, "stop", grace_s=grace_s)
        survivors = _wait_until_ended(paths, grace_s, STOPPED_BY_OPERATOR)
        if not survivors and _phase(paths) == "ended":
            # A disk error may have prevented the removal of the secrets when the run ended.
            leftovers.remove_secret_files(paths)
        has_minder = _has_minder(paths)
    return {
        "survivors": survivors,
        "seconds": round(time.monotonic() - started_at, 3),
        "messenger": has_minder,
        "had_ended": had_ended,
    }


# --- orders to the minder, and waiting until an order has had its effect


def _write_end_order(paths: RunPaths, order: str, **fields: Any) -> None:
    """Write an order for the minder. If a full disk prevents that, tell the supervisors to end
    their tasks; the minder then sees that the tasks have ended."""
    try:
        paths.write_minder_order(order, time=time.time(), **fields)
    except OSError:
        for spec in paths.part().tasks:
            tell_supervisor_to_stop(
                paths, spec.task, STOPPED_BY_OPERATOR, paths.part().stop_grace_s
            )


def _has_minder(paths: RunPaths) -> bool:
    """Return whether the run's minder is alive. The minder may stay alive after the end of the run,
    until it has informed other hosts."""
    return is_locked(paths.minder_lock)


def _phase(paths: RunPaths) -> str:
    return paths.state().phase


def refuse_if_ended(paths: RunPaths, refused_phases: "tuple[str, ...]" = ()) -> None:
    """Raise VerbError ended if the run has ended on this host, if it is in one of the phases in
    `refused_phases`, or if neither its minder nor a supervisor is alive."""
    state = paths.state()
    if state.phase == "ended" or state.phase in refused_phases or not liveness.is_live(paths):
        stopped = STOPPED_BY_OPERATOR if state.stop_requested else "its minder is gone"
        what = "run %s has ended on this host: %s" % (paths.run, state.abort_reason or stopped)
        raise VerbError("ended", what, advice="status_of_run", details={"run": paths.run})


def _wait_until_reached(paths: RunPaths, is_reached: Callable[[], bool]) -> None:
    """Wait until `is_reached` returns true, or until the run is no longer alive. Raises VerbError
    agent if the minder does not answer in time."""
    deadline = time.monotonic() + ANSWER_WITHIN_S
    pause = 0.002
    while not is_reached():
        if time.monotonic() > deadline:
            raise VerbError("agent", "the run's minder does not answer", where=paths.minder_log)
        if not liveness.is_live(paths) and not is_reached():
            return
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _wait_until_ended(paths: RunPaths, grace_s: float, reason: str) -> List[Answer]:
    """Wait until the minder has ended the run; end the run if there is no minder. Return the
    surviving processes."""
    tasks = paths.tasks()
    started_at = time.monotonic()
    deadline = started_at + grace_s + KILL_WITHIN_S
    pause = 0.005
    _send_signal_to_suspended_agents(paths, tasks, signal.SIGCONT)
    while (
        _phase(paths) != "ended" and os.path.isdir(paths.host_dir) and time.monotonic() < deadline
    ):
        if not is_locked(paths.minder_lock) and end_run_without_minder(paths, grace_s, reason):
            break
        if time.monotonic() - started_at >= FROZEN_AFTER_S:
            _send_signal_to_suspended_agents(paths, tasks, signal.SIGKILL)
            if _phase(paths) not in ("ending", "ended"):
                for task in tasks:
                    tell_supervisor_to_stop(paths, task, reason, grace_s)
        if pause >= POLL_S and not _has_live_task(paths, tasks):
            deadline = min(deadline, time.monotonic() + SAVE_WITHIN_S)
        time.sleep(pause)
        pause = min(pause * 1.5, POLL_S)
    pids = task_processes.find_task_processes(paths, tasks)
    deadline = max(deadline, time.monotonic() + ENDING_S)
    while pids[0] and time.monotonic() < deadline:
        time.sleep(pause)
        pids = task_processes.find_task_processes(paths, tasks)
    if not pids[0]:
        # The minder may not have put back the `keep` folders yet, or may have failed to do so.
        leftovers.restore_keep_if_aborted(paths)
    return task_processes.describe_survivors(*pids)


def _send_signal_to_suspended_agents(paths: RunPaths, tasks: List[str], signal_number: int) -> None:
    """Send the signal to each suspended process (state T or t) among the run's minder and
    supervisors. SIGCONT resumes a suspended process; SIGKILL ends one that a debugger holds."""
    supervisors = (task_processes.read_supervisor(paths, task) for task in tasks)
    for agent in (task_processes.read_minder(paths), *supervisors):
        process = processes.read_process(agent.pid) if agent is not None else None
        if agent is not None and process is not None and process.state in "Tt":
            processes.send_signal(agent, signal_number)


def _has_live_task(paths: RunPaths, tasks: List[str]) -> bool:
    """Return whether a task runs, or a supervisor is about to start it. A supervisor that only
    waits to write the task's end does not count."""
    pending = [task for task in tasks if paths.status(task).state == "pending"]
    return any(is_locked(paths.supervisor_lock(task)) for task in pending) or bool(
        task_processes.find_task_processes(paths, tasks)[0]
    )


def end_run_without_minder(paths: RunPaths, grace_s: float, reason: str) -> bool:
    """End the run under the minder's lock, so that no minder starts meanwhile. Return False if a
    minder holds the lock.

    Raises NoPart if the lock's file is gone, because the minder has just removed a run that never
    began.
    """
    lock = FileLock(paths.minder_lock)
    try:
        if not lock.acquire():
            return False
    except FileNotFoundError as error:
        raise HostPartMissing(
            "run %s is not known here: %s is gone" % (paths.run, paths.minder_lock)
        ) from error
    with lock:
        store.remove_partial_files(paths)
        part = paths.part()
        tasks = [spec.task for spec in part.tasks]
        _end_supervisors(paths, tasks, grace_s, reason)
        task_processes.end_task_processes(paths, tasks, grace_s)
        rebooted = paths.state().boot_id not in (None, processes.boot_id())
        outcome = ("lost", "host rebooted") if rebooted else ("stopped", reason)
        reaped = [reap.reap_task(paths, task, *outcome) for task in tasks]
        if all(reaped):
            leftovers.remove_secret_files(paths)
            state = paths.state()
            state.phase, state.ended = "ended", clock.now(part)
            state.stop_requested = state.stop_requested or paths.minder_order("stop") is not None
            if paths.minder_order("abort") is not None:
                state.abort_reason = state.abort_reason or reason
            leftovers.restore_keep_links(paths)
            state.left_files = leftovers.list_new_files(paths, part)
            state.ended_tasks.update({task: make_ending(paths.status(task)) for task in tasks})
            paths.write_state(state)
            leftovers.restore_keep_if_aborted(paths)
            leftovers.remove_doubt_files(paths)
        return True


def _end_supervisors(paths: RunPaths, tasks: List[str], grace_s: float, reason: str) -> None:
    """Order each supervisor to end its task, and wait until all supervisors have ended. The longest
    wait is the grace time plus half of KILL_WITHIN_S."""
    for task in tasks:
        tell_supervisor_to_stop(paths, task, reason, grace_s)
    deadline = time.monotonic() + grace_s + KILL_WITHIN_S / 2
    while time.monotonic() < deadline and any(
        is_locked(paths.supervisor_lock(task)) for task in tasks
    ):
        time.sleep(0.02)


VERBS: Dict[str, Verb] = {
    "run.prepare": prepare_run,
    "run.renew": record_launch_alive,
    "run.start": start_run,
    "run.commit": commit_run,
    "run.abort": abort_run,
    "run.stop": stop_run,
    "run.watch": watch_run,
}
