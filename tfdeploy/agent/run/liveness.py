"""Tell whether the minder of a run (the agent's daemon for the run) or a supervisor of a task is
alive on this host. Reads only."""

from __future__ import annotations

from tfdeploy.agent.host import boot_id
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.run.folder import RunPaths


def is_live(paths: RunPaths) -> bool:
    """Return whether the run has not ended and has a live minder or supervisor. A run that was
    started before this machine's last boot is not live."""
    state = paths.state()
    is_current = state.phase != "ended" and state.boot_id in (None, boot_id())
    return is_current and has_live_agent_process(paths)


def has_live_agent_process(paths: RunPaths) -> bool:
    """Return whether a minder or supervisor of the run is alive."""
    return is_locked(paths.minder_lock) or any(
        is_locked(paths.supervisor_lock(task)) for task in paths.tasks()
    )


def was_committed(paths: RunPaths) -> bool:
    return paths.is_commit_recorded() or paths.state().phase == "committed"


def is_committed_without_live_process(paths: RunPaths) -> bool:
    """Return True if the run was committed and has not ended on this host, but its minder and all
    its supervisors are dead, for example after a reboot. See serve/run/minder_start.py."""
    return paths.state().phase != "ended" and not is_live(paths) and was_committed(paths)
