"""Answers `runs`, `run.status` and `run.plan`: reads the state of runs from their folders. Changes
no file.

If a process died before it could record how a task ended, this module derives the end: a task that
ran before a reboot, or whose supervisor is dead, is `lost`.
"""

from __future__ import annotations

from tfdeploy.agent import frames, layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, List, Optional, Tuple
from tfdeploy.agent.call import Call
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import boot_id
from tfdeploy.agent.host.atomic import read_json
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.record import replace
from tfdeploy.agent.run import shown_plan, unwritten_ends
from tfdeploy.agent.run.find import find_damage, find_run_paths, jobs_with_runs, run_names
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.liveness import is_committed_without_live_process, is_live, was_committed

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

OVER = ("ended", "lost")
# One answer lists at most this many ended tasks and leftover files of the newest past runs, and at
# most as many deciding tasks of older runs. A list of this length has about 4 MiB.
MOST_ENDINGS = 20_000
NOBODY = "no process manages the task: its minder and its supervisor died"


def named_run_paths(call: Call) -> RunPaths:
    """For the run that a call names, return the paths of this host's folder. Raises VerbError
    unknown_run."""
    job, run = call.job, call.name("run")
    paths = find_run_paths(call.workdir, job, run, call.host)
    if paths is None and (fault := find_damage(call.workdir, job, run)):
        what = "the files of run %s of job %s are damaged on this host: %s" % (run, job, fault)
        raise VerbError("unknown_run", what, advice="remove_damaged_run")
    if paths is None:
        what = "this host has no files of run %s of job %s, or they were removed" % (run, job)
        raise VerbError("unknown_run", what, advice="list_runs")
    paths.check_owner("tasks")
    return paths


def read_phase(paths: RunPaths) -> str:
    """Return the phase of the run on this host."""
    return paths.state().phase


def is_of_named_plan(call: Call, paths: RunPaths) -> bool:
    """Return whether the run was prepared from the plan whose digest the call names. Return True if
    the call names no digest."""
    digest = paths.part().plan_digest
    return call.text("plan_digest", digest) == digest


def task_status(paths: RunPaths, task: str) -> wire.TaskStatus:
    """Return a task's status: `pending` if the task is about to start again, `lost` if its
    supervisor died without recording an end, otherwise the status that the supervisor wrote."""
    # Read the state before the status. The field `again` of the state has the tasks that will start
    # again; the minder removes a task from it once the new attempt has written its status. If the
    # status were read first, a task that starts again between the two reads would be reported as
    # ended.
    state = paths.state()
    status = paths.status(task)
    if task in state.again and status.state in OVER and is_live(paths):
        return replace(status, state="pending", outcome=None, up=False, reason=state.again[task])
    if status.state in OVER or (status.state == "pending" and state.phase == "ended"):
        died = status.outcome not in ("stopped", "succeeded")
        return status if died else _with_restart_reason(paths, status, state)
    if (status.boot_id or state.boot_id) not in (None, boot_id()):
        return _lost_status(status, "host rebooted")
    if status.state != "pending" and not is_locked(paths.supervisor_lock(task)):
        status = paths.status(task)  # the task may have ended since its status was read
        if status.state in OVER:
            return status
        has_minder = is_locked(paths.minder_lock)
        return _lost_status(status, "its supervisor died" if has_minder else NOBODY)
    if status.state == "pending" and is_committed_without_live_process(paths):
        return _lost_status(status, NOBODY)
    status = unwritten_ends.resolve_unwritten_end(paths, status)
    if status.state in OVER:
        return status
    return _with_health(_with_restart_reason(paths, status, state), state)


def _with_restart_reason(
    paths: RunPaths, status: wire.TaskStatus, state: wire.HostRunState
) -> wire.TaskStatus:
    if status.attempt <= 1:
        return status
    return replace(status, began_again=_restart_reason(paths, status, state))


def _with_health(status: wire.TaskStatus, state: wire.HostRunState) -> wire.TaskStatus:
    health = state.health.get(status.task)
    if health is None or status.state != "running" or health["attempt"] != status.attempt:
        return status
    return replace(
        status, health=health["word"], health_reason=health["reason"], health_since=health["since"]
    )


def _restart_reason(
    paths: RunPaths, status: wire.TaskStatus, state: wire.HostRunState
) -> Optional[str]:
    """Return why the task was started again, or None if the reason was not recorded. If the task
    restarted alone, the reason is how its previous attempt ended. If its gang (tasks that restart
    together) restarted, the reason is the death that caused the restart."""
    ending, restarted_alone = None, False
    count = state.restarts.get(status.task)
    if count is not None and count.get("attempt") == status.attempt - 1:
        ending = count.get("how")
        # True if this task has restarted alone since the last common restart of its gang.
        restarted_alone = ending is not None and count.get("round") == status.round
    in_gang = any(peer.gang for peer in paths.part().peers if peer.task == status.task)
    round_ = state.round
    if in_gang and not restarted_alone and round_ is not None and round_["n"] == status.round:
        return "all tasks that restart together were started again: %s" % round_.get("reason")
    return None if ending is None else "started again: %s" % ending


def has_ended_for_good(paths: RunPaths, task: str) -> bool:
    """Return whether the task has ended and its minder has recorded that the task does not start
    again."""
    status = task_status(paths, task)
    if status.state not in OVER:
        return False
    state, part = paths.state(), paths.part()
    peer = next((peer for peer in part.peers if peer.task == task), None)
    if state.phase == "ended" or peer is None or part.restart_max == 0 or not peer.on_death:
        return True
    ending = state.ended_tasks.get(task)
    return (
        ending is not None
        and not peer.gang
        and ending.get("final", True)
        and ending.get("attempt", 0) >= status.attempt
    )


def _lost_status(status: wire.TaskStatus, reason: str) -> wire.TaskStatus:
    return replace(status, state="lost", outcome="lost", up=False, reason=reason)


def describe_run(paths: RunPaths, state: Optional[wire.HostRunState] = None) -> Answer:
    """Return the state of a run on this host, in the form of run.status's answer."""
    return {
        "host_state": wire.to_wire(state or paths.state()),
        "tasks": [wire.to_wire(task_status(paths, spec.task)) for spec in paths.part().tasks],
        "live": is_live(paths),
        "left": is_committed_without_live_process(paths),
        "committed": was_committed(paths),
    }


def list_runs(call: Call) -> List[Answer]:
    """List the runs on this host, newest first. The field `ended_tasks` of a run lists its ended
    tasks. The newest past runs list all of them, up to 20,000 tasks and left files in all. Older
    runs list only the tasks that decide the run's outcome (again up to 20,000), and no left files.

    Args: job?.
    """
    workdir = call.workdir
    jobs = [call.job] if call.flag("job") else jobs_with_runs(workdir)
    runs: List[Tuple[float, Answer, wire.HostRunState, Optional[RunPaths]]] = []
    for job in jobs:
        for run in run_names(workdir, job):
            paths = find_run_paths(workdir, job, run, call.host)
            if paths is not None:
                state = paths.state()
                row = {**describe_run(paths, state), "run": run, "job": job}
                runs.append((paths.prepared_time(), row, state, paths))
            elif damage := find_damage(workdir, job, run):
                state = wire.HostRunState(run, job, "_")  # the other fields cannot be read
                runs.append((0.0, _damaged_row(state, damage), state, None))
    runs.sort(key=lambda each: (each[0], each[1]["run"]), reverse=True)
    _shorten_older_rows([each[1:] for each in runs if not each[1]["live"]])
    return [row for _, row, _, _ in runs]


def _shorten_older_rows(runs: List[Tuple[Answer, wire.HostRunState, Optional[RunPaths]]]) -> None:
    """Shorten the rows of older runs. `runs`: (row, state, paths) of each run that is not live,
    newest first."""
    endings = short_endings = 0
    for row, state, paths in runs:
        endings += len(state.ended_tasks) + len(state.left_files)
        if endings > MOST_ENDINGS:
            ended_tasks = state.ended_tasks
            if ended_tasks and paths is not None:
                deciding = {peer.task for peer in paths.part().peers if peer.deciding}
                short_endings += len(deciding)
                kept = deciding & ended_tasks.keys() if short_endings <= MOST_ENDINGS else ()
                ended_tasks = {task: ended_tasks[task] for task in sorted(kept)}
            shortened = replace(state, ended_tasks=ended_tasks, left_files=[])
            row["host_state"] = wire.to_wire(shortened)


def _damaged_row(state: wire.HostRunState, damage: str) -> Answer:
    return {
        "run": state.run,
        "job": state.job,
        "damaged": damage,
        "host_state": wire.to_wire(state),
        "tasks": [],
        "live": False,
        "left": False,
        "committed": False,
    }


def run_status(call: Call) -> Answer:
    """Return the state of a run on this host.

    Args: run, job.

    Raises VerbError unknown_run.
    """
    paths = named_run_paths(call)
    return {**describe_run(paths), "samples": read_json(paths.file(layout.NEWEST_SAMPLES))}


def run_plan(call: Call) -> Answer:
    """Send the packed plan.json as the blob of an item, unless the caller already knows its sha256.

    Args: run, job, unless? (the sha256 that the caller knows).

    Raises VerbError unknown_run.
    """
    import hashlib

    paths = named_run_paths(call)
    try:
        plan = shown_plan.read_plan_bytes(paths.workdir, paths.job, paths.run)
    except OSError as error:
        what = "the plan of run %s cannot be read here: %s" % (paths.run, error.strerror)
        raise VerbError("unknown_run", what, where=paths.run_dir) from error
    if call.text("unless") != hashlib.sha256(plan).hexdigest():
        call.item({}, frames.compress(plan))
    return {}


VERBS = {"runs": list_runs, "run.status": run_status, "run.plan": run_plan}
