"""Whether files that other processes replace have changed: cheap enough for ten looks a second
beside a training."""

from __future__ import annotations

import os
import time

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import List, Optional, Sequence, Tuple
from tfdeploy.agent.run.folder import RunPaths

RECHECK_S = 2.0  # a supervisor that was killed leaves its files as they are


class Changes:
    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._stamps: Optional[List[Optional[Tuple[int, int]]]] = None
        self._reported_at = 0.0

    def any(self) -> bool:
        """Whether a file changed since the last call. Always true at the first call, and RECHECK_S
        after it last was."""
        stamps, now = [_stamp(file) for file in self._files], time.monotonic()
        if stamps == self._stamps and now - self._reported_at < RECHECK_S:
            return False
        self._stamps, self._reported_at = stamps, now
        return True


def of_run(paths: RunPaths, tasks: Sequence[str]) -> Changes:
    """The files with the state of the run on this host and of these tasks, and with its newest
    samples."""
    return Changes(
        [paths.state_file, paths.file(layout.NEWEST_SAMPLES)]
        + [paths.status_file(task) for task in tasks]
    )


def _stamp(file: str) -> Optional[Tuple[int, int]]:
    """Every write is a rename: another inode, or at least another time."""
    try:
        about = os.stat(file)
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns
