"""A supervisor's second duty: a minder is alive for as long as the run has not ended on this host."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Any, List, Mapping, Optional
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.run.folder import RunPaths, agent_command

CHECK_S = 1.5
_GONE_S = 10.0  # a mount may be away for a moment


class FolderWatch:
    """Whether the folder of a running task was removed: then the supervisor ends the task, which no verb could find any more.
    A file server that does not answer does not count."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._gone: Optional[float] = None  # since when

    def is_gone(self, now: float) -> bool:
        try:
            os.lstat(self._folder)
        except FileNotFoundError:
            self._gone = self._gone or now
            return now - self._gone >= _GONE_S
        except OSError:
            return False
        self._gone = None
        return False


def ensure(paths: RunPaths, left: Mapping[str, Any] = {}) -> None:  # noqa: B006 - never changed
    """Starts a minder if none is alive and the run has not ended here. `left`: for Popen, see host/descriptors.py."""
    if is_locked(paths.minder_lock) or paths.state().phase == "ended" or not os.path.isdir(paths.host_dir):
        return
    # Not as a subreaper: the minder must be no child of this process, or it would count as part of the task.
    processes.become_subreaper(False)
    try:
        with open(paths.minder_log, "ab") as log:
            subprocess.call(
                agent_command("minder", paths.host_dir),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **left,
            )
    except OSError:
        pass
    finally:
        processes.become_subreaper()


def ensure_until_end(paths: RunPaths, part: wire.HostPart, left: Mapping[str, Any]) -> None:
    """Makes sure that a minder is alive after this supervisor, the host's last one, has ended: only the minder ends the run.
    A child process does that until the run has ended here or another supervisor lives."""
    ensure(paths, left)
    locks = [paths.supervisor_lock(spec.task) for spec in part.tasks]
    if not _is_last(paths, locks) or os.fork() > 0:
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pause = 0.1
    while _is_last(paths, locks):
        ensure(paths, left)
        time.sleep(pause)
        pause = min(pause * 1.5, CHECK_S)
    os._exit(0)


def _is_last(paths: RunPaths, locks: List[str]) -> bool:
    if any(map(is_locked, locks)) or not os.path.isdir(paths.host_dir):
        return False
    return paths.state().phase != "ended"
