"""Whether files that others write were written again: cheap enough to be asked ten times a second beside a training."""

from __future__ import annotations

import os
import time

from tfdeploy.agent.annotations import List, Optional, Sequence, Tuple
from tfdeploy.agent.run.folder import RunPaths

ANYWAY_S = 2.0  # a death that nobody could write down changes no file


class Changes:
    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._stamps: Optional[List[Optional[Tuple[int, int]]]] = None
        self._told = 0.0

    def any(self) -> bool:
        """Since it was last asked; the first time, and after ANYWAY_S without any, always."""
        stamps, now = [_stamp(file) for file in self._files], time.monotonic()
        if stamps == self._stamps and now - self._told < ANYWAY_S:
            return False
        self._stamps, self._told = stamps, now
        return True


def of_run(paths: RunPaths, tasks: Sequence[str]) -> Changes:
    """What tells how these tasks are, and the run on this host."""
    return Changes([paths.state_file] + [paths.status_file(task) for task in tasks])


def _stamp(file: str) -> Optional[Tuple[int, int]]:
    """Every write is a rename: another inode, or at least another time."""
    try:
        about = os.stat(file)
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns
