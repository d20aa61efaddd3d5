"""Whether somebody minds a run on this host. Reads only."""

from __future__ import annotations

from tfdeploy.agent.host import boot_id
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.run.folder import RunPaths


def is_live(paths: RunPaths) -> bool:
    """Not ended, of this boot, and somebody who minds it is alive."""
    state = paths.state()
    if state.phase == "ended" or state.boot_id not in (None, boot_id()):
        return False
    if is_locked(paths.minder_lock):
        return True
    return any(is_locked(paths.supervisor_lock(spec.task)) for spec in paths.part().tasks)


def was_committed(paths: RunPaths) -> bool:
    return paths.says_committed() or paths.state().phase == "committed"


def is_abandoned(paths: RunPaths) -> bool:
    """A committed run that has not ended here, and nobody who minds it is alive: see run_resume.py."""
    state = paths.state()
    if state.phase == "ended" or is_live(paths):
        return False
    return was_committed(paths)
