"""Kill the processes of a task whose supervisor is dead, and write the task's status. Does nothing
while the supervisor is alive."""

from __future__ import annotations

import os

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Optional
from tfdeploy.agent.host.atomic import remove_temporaries
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.log.format import LOG
from tfdeploy.agent.run import clock, task_processes
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.leftovers import restore_keep_links


def reap_task(
    paths: RunPaths, task: str, outcome: str, reason: str, attempt: int = 1, round_number: int = 1
) -> bool:
    """Kill the task's processes and write its status. `attempt`, `round_number`: the numbers of the
    attempt that ends and of its round. They are needed because the supervisor of this attempt may
    have died before it wrote a status.

    Return False if the caller must try again: the supervisor is alive, a process could not be
    killed, or the disk is full. Raises OSError, for example if the run's folder was removed.
    """
    paths.make_task_dir(task)
    # No supervisor can start while this process holds the lock.
    with FileLock(paths.supervisor_lock(task)) as lock:
        if not lock.acquire():
            return False
        remove_temporaries(paths.status_file(task))
        status = paths.status(task)
        if status.attempt < attempt and status.state != "pending":
            status = wire.TaskStatus(
                paths.run, task, paths.host, attempt=attempt, state="starting", round=round_number
            )
        if status.state in wire.OVER:
            return True
        if task_processes.end_task_processes(paths, [task], 0.0):
            return False
        restore_keep_links(paths, task)
        status.state = "lost" if outcome == "lost" else "ended"
        status.outcome, status.reason, status.ended = outcome, reason, clock.now(paths.part())
        status.lived_s = _estimate_lifetime_s(paths, status)
        try:
            paths.write_status(status)
        except OSError:
            return False
        return True


def _estimate_lifetime_s(paths: RunPaths, status: wire.TaskStatus) -> Optional[float]:
    """Return how many seconds the attempt lived at least: from its start to the last line in its
    log. Return None if one of these times is unknown. If somebody adjusts the host's clock during
    the attempt, the result may be wrong."""
    try:
        last = clock.to_run_clock(
            paths.part(), os.stat(os.path.join(paths.task_dir(status.task), LOG)).st_mtime
        )
    except OSError:
        return None
    return None if status.started is None else round(max(0.0, last - status.started), 3)


def record_gave_up(paths: RunPaths, task: str, reason: str) -> bool:
    """Record in the status of an ended task that the task is not restarted again. `reason` says
    why. Return False if the caller must try again."""
    with FileLock(paths.supervisor_lock(task)) as lock:
        if not lock.acquire():
            return False
        status = paths.status(task)
        status.outcome, status.reason = "gave_up", reason
        try:
            paths.write_status(status)
        except OSError:
            return False
        return True
