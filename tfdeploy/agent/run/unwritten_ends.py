"""Find tasks that have ended, but whose supervisor cannot record the end because the disk is full,
broken or read-only. This module waits a few seconds for the supervisor. After that, it reports the
task as lost. It writes nothing."""

from __future__ import annotations

import os
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Optional, Set, Tuple
from tfdeploy.agent.record import replace
from tfdeploy.agent.run.folder import RunPaths

PATIENCE_S = 3.0  # how long a supervisor may take to write the end of its task
REASON = (
    "its process is gone, and its end could not be recorded: is the disk full, broken or read-only?"
)
# (folder, task, attempt) of the attempts for whose end this process has already waited. It does not
# wait for the same attempt twice.
_awaited: Set[Tuple[str, str, int]] = set()


def resolve_unwritten_end(paths: RunPaths, status: wire.TaskStatus) -> wire.TaskStatus:
    """Return the current status of a task whose supervisor is alive. If the task's process has
    ended, but the supervisor has not recorded the end, the returned status is `lost`."""
    if status.pid is None or os.path.exists("/proc/%d" % status.pid):
        return status
    which = (paths.host_dir, status.task, status.attempt)
    if which not in _awaited:
        from tfdeploy.agent.run import task_processes

        if task_processes.find_task_processes(paths, [status.task])[0]:
            return status  # the supervisor is still ending processes that the task left behind
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and not _read_newer_status(paths, status):
            time.sleep(0.05)
    now = _read_newer_status(paths, status)
    if now is not None:
        return now
    _awaited.add(which)
    return replace(status, state="lost", outcome="lost", up=False, reason=REASON)


def _read_newer_status(paths: RunPaths, status: wire.TaskStatus) -> Optional[wire.TaskStatus]:
    now = paths.status(status.task)
    return now if (now.state, now.attempt) != (status.state, status.attempt) else None
