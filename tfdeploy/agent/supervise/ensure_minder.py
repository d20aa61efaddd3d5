"""Keep a minder (the process that manages the run on this host) alive until the run has ended on
this host. Each supervisor does this besides its main task."""

from __future__ import annotations

import os
import signal
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import Any, Mapping, Optional, Tuple
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.run.folder import RunPaths, start_agent

CHECK_INTERVAL_S = 1.5  # the pause between two checks for a living minder
# The folder counts as removed after it was missing for this many seconds. A shorter absence may be
# a mount that failed for a moment.
_REMOVED_AFTER_S = 10.0


class TaskFolderWatch:
    """Detects that the folder of a running task was removed. The supervisor then ends the task,
    because no command of tfdeploy could find it any more. If only the file server does not answer,
    the folder does not count as removed."""

    def __init__(self, folder: str) -> None:
        """`folder`: the folder of the task on this host."""
        self._folder = folder
        # The time since which the folder has been missing. None while the folder exists.
        self._missing_since: Optional[float] = None

    def is_gone(self, now: float) -> bool:
        """Return True if the folder has been missing for _REMOVED_AFTER_S seconds. `now`: monotonic
        seconds."""
        try:
            os.lstat(self._folder)
        except FileNotFoundError:
            self._missing_since = self._missing_since or now
            return now - self._missing_since >= _REMOVED_AFTER_S
        except OSError:
            return False
        self._missing_since = None
        return False


class MinderWatch:
    """Watches the minder of one run, and starts a new one if needed. The object must be created
    while the folder of this run surely exists: a later run may have the same name, and so the same
    paths."""

    def __init__(self, paths: RunPaths, part: wire.HostPart, inherited: Mapping[str, Any]) -> None:
        """Remember which launch wrote the run's folder. `inherited`: arguments of Popen by which a
        new minder inherits sockets, see host/descriptors.py."""
        self._paths = paths
        self._locks = [paths.supervisor_lock(spec.task) for spec in part.tasks]
        self._inherited = inherited
        self._launch_identity = _launch_identity(paths)

    def ensure_minder(self) -> None:
        """Start a minder if none is alive and the run has not ended on this host."""
        if is_locked(self._paths.minder_lock) or self._is_run_over():
            return
        # The minder detaches itself from its parent. A parent that is a subreaper would become its
        # parent again, and the minder would seem to be part of the task. So this process is no
        # subreaper for a moment.
        processes.become_subreaper(False)
        try:
            start_agent(
                self._paths.minder_log, "minder", self._paths.host_dir, **self._inherited
            ).wait()
        except OSError:
            pass
        finally:
            processes.become_subreaper()

    def ensure_minder_until_end(self) -> None:
        """Make sure that a minder stays alive after this supervisor has ended, because only a
        minder can end the run. If no other supervisor lives on this host, start a child process
        that replaces a dead minder. The child process ends when the run has ended on this host, or
        when a supervisor lives here again."""
        self.ensure_minder()
        if not self._must_keep_minder() or os.fork() > 0:
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        pause = 0.1
        while self._must_keep_minder():
            self.ensure_minder()
            time.sleep(pause)
            pause = min(pause * 1.5, CHECK_INTERVAL_S)
        os._exit(0)

    def _must_keep_minder(self) -> bool:
        return not any(map(is_locked, self._locks)) and not self._is_run_over()

    def _is_run_over(self) -> bool:
        """Return True if the run has ended on this host, or its folder was removed or replaced."""
        return (
            self._launch_identity != _launch_identity(self._paths)
            or self._paths.state().phase == "ended"
        )


def _launch_identity(paths: RunPaths) -> Optional[Tuple[int, int]]:
    """Return what identifies the launch that wrote the file part.json: the file's inode and time.
    Each launch writes a new file, so a later run with the same name has another identity. Return
    None if the file does not exist."""
    try:
        part_stat = os.stat(paths.file(layout.PART))
    except OSError:
        return None
    return part_stat.st_ino, part_stat.st_mtime_ns
