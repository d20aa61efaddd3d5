"""Ends a run on this host: answers run.abort and run.stop, and undoes launches that did not finish
because their serve process or the machine died. A verb writes an order for the run's minder process
and waits for the effect. If the minder is dead, the run is ended here. Signals are sent only to
processes whose identity or environment shows that they belong to the run.

Each new session undoes unfinished launches. A run that is being prepared, has a minder or was
committed is left alone.

Answers run.known and run.tell. With these verbs, the control machine learns from one host why a run
is over, and tells another host that does not know the reason. On the other host, the run's minder
reads the reason: see mesh/forwarded_end.py.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from tfdeploy.agent import json_text, layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, List
from tfdeploy.agent.call import Call, Verb, audited
from tfdeploy.agent.errors import VerbError, is_safe_name
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.flock import FileLock, is_locked
from tfdeploy.agent.layout import HostPartMissing
from tfdeploy.agent.mesh import bounded_json, forwarded_end, shared_state
from tfdeploy.agent.minder import store
from tfdeploy.agent.minder.decide import STOPPED_BY_OPERATOR
from tfdeploy.agent.minder.supervisors import tell_supervisor_to_stop
from tfdeploy.agent.ownership import check_owners
from tfdeploy.agent.run import clock, leftovers, liveness, reap, task_processes, uncommitted
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.run import minder_start
from tfdeploy.agent.serve.run.status import is_of_named_plan, named_run_paths, read_phase

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

KILL_WITHIN_S = 8.0  # how long processes may live after SIGKILL
# On a busy host, the arguments and environment of a process that is ending cannot be read for a
# while. An ending process of the agent then looks like a task without a supervisor. Only after this
# time does such a process count as a live task.
ENDING_S = 3.0
# How long the minder may take to record that all processes have ended. A full disk may prevent it
# from doing so.
SAVE_WITHIN_S = 1.0
FROZEN_AFTER_S = 3.0  # a minder that does not begin to end the run in this time counts as frozen
POLL_S = 0.05
PEERS_INFORMED_S = 3.0  # how long a minder that has ended its run may still inform other hosts
WHY = "the launch of the run was not completed"


@audited("launch", "rolled back")
def abort_run(call: Call) -> Answer:
    """End a run on this host. With `purge`, also remove the run's folder once none of its processes
    is alive. A run that was prepared with another plan is left alone. If the run is still being
    prepared, its preparation is stopped first.

    Args: run, job, reason, purge, plan_digest.
    """
    _stop_preparing(call)
    try:
        paths = named_run_paths(call)
        if not is_of_named_plan(call, paths):
            return {}
        reason = call.text("reason", "rolled back")
        if read_phase(paths) != "ended" or _has_minder(paths):
            _write_end_order(paths, "abort", reason=reason)
        survivors = _ensure_ended(paths, paths.part().stop_grace_s, reason)
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
    if uncommitted.is_uncommitted(paths):
        uncommitted.request_abort(paths, digest)
        with minder_start.hold_prepare_lock(paths, digest):
            uncommitted.remove_abort_request(paths)


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
        paths = named_run_paths(call)
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
            read_phase(paths) == "ended" and not task_processes.find_task_processes(paths, tasks)[0]
        )
        grace_s = part.stop_grace_s if grace_argument is None else grace_argument
        if read_phase(paths) != "ended" or _has_minder(paths):
            before = paths.minder_order("stop")
            if before is None or before.get("grace_s", grace_s) > grace_s:
                _write_end_order(paths, "stop", grace_s=grace_s)
        survivors = _ensure_ended(paths, grace_s, STOPPED_BY_OPERATOR)
        if not survivors and read_phase(paths) == "ended":
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


def _ensure_ended(paths: RunPaths, grace_s: float, reason: str) -> List[Answer]:
    """Wait until the minder has ended the run. If the run has no minder, end the run here. Return
    the processes of the run that are still alive."""
    tasks = paths.tasks()
    started_at = time.monotonic()
    deadline = started_at + grace_s + KILL_WITHIN_S
    pause = 0.005
    _send_signal_to_suspended_agents(paths, tasks, signal.SIGCONT)
    while (
        read_phase(paths) != "ended"
        and os.path.isdir(paths.host_dir)
        and time.monotonic() < deadline
    ):
        if not is_locked(paths.minder_lock) and end_run_without_minder(paths, grace_s, reason):
            break
        if time.monotonic() - started_at >= FROZEN_AFTER_S:
            _send_signal_to_suspended_agents(paths, tasks, signal.SIGKILL)
            if read_phase(paths) not in ("ending", "ended"):
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
        # Put back the `keep` folders that an aborted launch had renamed. Usually, the minder has
        # already done so; but the minder may be dead, or a disk error may have prevented it.
        leftovers.restore_keep_if_aborted(paths)
    return task_processes.describe_survivors(*pids)


def _send_signal_to_suspended_agents(paths: RunPaths, tasks: List[str], signal_number: int) -> None:
    """Send the signal to each suspended process (state T or t) among the run's minder and
    supervisors. SIGCONT resumes a suspended process. SIGKILL ends a process that SIGCONT did not
    resume, such as one that a debugger holds."""
    supervisors = (task_processes.find_live_supervisor(paths, task) for task in tasks)
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

    Raises HostPartMissing if the lock's file is gone, because the minder has just removed a run
    that never began.
    """
    lock = FileLock(paths.minder_lock)
    try:
        if not lock.acquire():
            return False
    except FileNotFoundError as error:
        raise HostPartMissing(
            "the files of run %s were removed from this host: %s is gone"
            % (paths.run, paths.minder_lock)
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
            state.ended_tasks.update(
                {task: shared_state.make_ending(paths.status(task)) for task in tasks}
            )
            paths.write_state(state)
            leftovers.restore_keep_if_aborted(paths)
            leftovers.remove_uncommitted_marks(paths)
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


def remove_run_folder(paths: RunPaths) -> None:
    """Remove the run's folder. Its minder writes to the folder, so wait up to PEERS_INFORMED_S
    until the minder has informed other hosts and ended, and kill it after that time."""
    deadline = time.monotonic() + PEERS_INFORMED_S
    while is_locked(paths.minder_lock) and time.monotonic() < deadline:
        time.sleep(0.02)
    minder = task_processes.read_minder(paths)
    if minder is not None:
        processes.send_signal(minder, signal.SIGKILL)
    leftovers.remove_run(paths)


# --- launches that did not come to an end


def undo_unfinished_launches(workdir: str, host: str) -> None:
    """Clean up all unfinished launches of this machine. `host`: this machine's name in the
    session's inventory, or "".

    A run that cannot be cleaned up, because its folder belongs to another user or is damaged, stays
    and is reported on standard error.
    """
    for paths in uncommitted.list_own_uncommitted_runs(workdir, host):
        try:
            _undo_unfinished_launch(paths)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next session tries again
            report = "tfdeploy agent: unfinished launch of run %s (job %s) cannot be undone: %s\n"
            sys.stderr.write(report % (paths.run, paths.job, error))


def _undo_unfinished_launch(paths: RunPaths) -> None:
    check_owners(paths.workdir, *layout.job_folders(paths.job))
    paths.check_owner("tasks")
    with minder_start.hold_prepare_lock_if_free(paths) as is_free:
        if is_free:
            _end_or_remove_run(paths)


def _end_or_remove_run(paths: RunPaths) -> None:
    whole = paths.has_readable_part()
    if is_locked(paths.minder_lock) or (whole and liveness.is_live(paths)):
        return  # the run's minder is alive: it waits until the launch goes on, or ends the run
    if not liveness.was_committed(paths):
        if not whole or paths.state().started is None:
            leftovers.remove_run(paths)
        elif paths.state().phase != "ended":
            end_run_without_minder(paths, 0.0, WHY)
        else:
            leftovers.restore_keep_if_aborted(paths)
    leftovers.remove_uncommitted_marks(paths)


# --- why a run is over


def report_known_end(call: Call) -> Answer:
    """Report why the run is over, as far as this host knows.

    Args: run, job.

    Raises VerbError unknown_run.
    """
    paths = named_run_paths(call)
    part = paths.part()
    knowledge = shared_state.from_json(paths.stored_shared_state() or {}, part)
    if not knowledge.is_over:
        return {"known": None}
    end = shared_state.keep_only_run_end_fields(part.peers, knowledge)
    return {"known": json_text.encode(end.as_json()).decode()}


def store_forwarded_end(call: Call) -> Answer:
    """Store why the run is over. The control machine sends this to hosts that cannot reach each
    other: another host's answer to run.known or, if no host knows the end, that all deciding tasks
    have succeeded. It is checked like a message between minders. The run's minder reads it at once,
    or when the minder is next started.

    Args: run, job, known.

    Raises VerbError unknown_run, bad_argument.
    """
    paths, text = named_run_paths(call), call.args.get("known")
    if not isinstance(text, str) or len(text) > wire.MAX_KNOWN_BYTES:
        raise VerbError("bad_argument", "`known` must describe how a run ended")
    try:
        end = shared_state.from_json(bounded_json.parse(text.encode("ascii")), paths.part())
    except ValueError as error:
        raise VerbError(
            "bad_argument", "`known` must describe how a run ended: %s" % error
        ) from error
    if paths.state().phase != "ended":
        forwarded_end.write_forwarded_run_end(paths, end)
    return {}


VERBS: Dict[str, Verb] = {
    "run.abort": abort_run,
    "run.stop": stop_run,
    "run.known": report_known_end,
    "run.tell": store_forwarded_end,
}
