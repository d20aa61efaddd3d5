"""Handle ends that a supervisor could not write because the disk gives errors or is read-only. The
supervisor gets a moment to write before its task counts as lost. Reads only."""

from __future__ import annotations

import os
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Optional, Set, Tuple
from tfdeploy.agent.record import replace
from tfdeploy.agent.run.folder import RunPaths

PATIENCE_S = 3.0
WORDS = (
    "its process is gone, and how it ended could not be written: is the disk full, broken or "
    "read-only?"
)
_known: Set[Tuple[str, str, int]] = set()  # found before: not waited for a second time


def resolved(paths: RunPaths, status: wire.TaskStatus) -> wire.TaskStatus:
    """Return the current status of a task with a living supervisor; `lost` if its process has ended
    and no status says how."""
    if status.pid is None or os.path.exists("/proc/%d" % status.pid):
        return status
    which = (paths.host_dir, status.task, status.attempt)
    if which not in _known:
        from tfdeploy.agent.run import task_processes

        if task_processes.members(paths, [status.task])[0]:
            return status  # its supervisor is still ending what it left behind
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and not _changed(paths, status):
            time.sleep(0.05)
    now = _changed(paths, status)
    if now is not None:
        return now
    _known.add(which)
    return replace(status, state="lost", outcome="lost", up=False, reason=WORDS)


def _changed(paths: RunPaths, status: wire.TaskStatus) -> Optional[wire.TaskStatus]:
    now = paths.status(status.task)
    return now if (now.state, now.attempt) != (status.state, status.attempt) else None
