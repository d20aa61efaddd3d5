"""Keep a minder alive as long as the run has not ended on this host. Each supervisor does this
besides its main task."""

from __future__ import annotations

import os
import signal
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import Any, Mapping, Optional, Tuple
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.run.folder import RunPaths, start_agent

CHECK_S = 1.5  # the pause between two checks for a living minder
_GONE_S = 10.0  # a missing folder counts only after so many seconds: a mount may fail for a moment


class FolderWatch:
    """Detects that the folder of a running task was removed. The supervisor then ends the task,
    because no verb could find it any more. A file server that does not answer does not count."""

    def __init__(self, folder: str) -> None:
        """`folder`: the folder of the task."""
        self._folder = folder
        self._gone: Optional[float] = None  # when the folder was first missing

    def is_gone(self, now: float) -> bool:
        """Return True if the folder has been missing for _GONE_S. `now`: monotonic seconds."""
        try:
            os.lstat(self._folder)
        except FileNotFoundError:
            self._gone = self._gone or now
            return now - self._gone >= _GONE_S
        except OSError:
            return False
        self._gone = None
        return False


class MinderWatch:
    """Watches the minder of one run. Create it while the run's folder surely exists: later, a new
    run may have the same name and so the same paths."""

    def __init__(self, paths: RunPaths, part: wire.HostPart, left: Mapping[str, Any] = {}) -> None:  # noqa: B006 - never changed
        """`left`: arguments of Popen that pass sockets to the minder, see host/descriptors.py."""
        self._paths = paths
        self._locks = [paths.supervisor_lock(spec.task) for spec in part.tasks]
        self._left = left
        self._launch = _launch(paths)

    def ensure(self) -> None:
        """Start a minder if none is alive and the run has not ended here."""
        if is_locked(self._paths.minder_lock) or self._is_over():
            return
        # A subreaper would become the minder's parent, and the minder would count as part of the
        # task.
        processes.become_subreaper(False)
        try:
            start_agent(self._paths.minder_log, "minder", self._paths.host_dir, **self._left).wait()
        except OSError:
            pass
        finally:
            processes.become_subreaper()

    def ensure_until_end(self) -> None:
        """Keep a minder alive after this supervisor has ended, if it is the host's last one: only
        the minder ends the run. A child process does this until the run has ended here or another
        supervisor lives."""
        self.ensure()
        if not self._is_last() or os.fork() > 0:
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        pause = 0.1
        while self._is_last():
            self.ensure()
            time.sleep(pause)
            pause = min(pause * 1.5, CHECK_S)
        os._exit(0)

    def _is_last(self) -> bool:
        return not any(map(is_locked, self._locks)) and not self._is_over()

    def _is_over(self) -> bool:
        """True if the run has ended here or was removed."""
        return self._launch != _launch(self._paths) or self._paths.state().phase == "ended"


def _launch(paths: RunPaths) -> Optional[Tuple[int, int]]:
    """Return a value that differs between this run and a later run of the same name, because each
    launch writes this host's part anew. None: the part does not exist."""
    try:
        part_stat = os.stat(paths.file(layout.PART))
    except OSError:
        return None
    return part_stat.st_ino, part_stat.st_mtime_ns
