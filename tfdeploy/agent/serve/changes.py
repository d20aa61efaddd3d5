"""Detects changes of files that other processes replace. The check is cheap enough to run ten times
a second beside a training."""

from __future__ import annotations

import os
import time

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import List, Optional, Sequence, Tuple
from tfdeploy.agent.run.folder import RunPaths

# Readers check the files again after this time even if no file has changed, because a supervisor
# that was killed leaves its files unchanged.
RECHECK_S = 2.0


class FileChanges:
    """The last known state of some files. `has_changed` compares it with the present state."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._stamps: Optional[List[Optional[Tuple[int, int]]]] = None
        self._reported_at = 0.0

    def has_changed(self) -> bool:
        """Return whether a file has changed since the last call. Also return True at the first
        call, and once RECHECK_S have passed since the last True."""
        stamps, now = [_file_stamp(file) for file in self._files], time.monotonic()
        if stamps == self._stamps and now - self._reported_at < RECHECK_S:
            return False
        self._stamps, self._reported_at = stamps, now
        return True


def watch_run_files(paths: RunPaths, tasks: Sequence[str]) -> FileChanges:
    """Return a FileChanges object for three kinds of files on this host: the state of the run, the
    statuses of these tasks, and the newest samples."""
    return FileChanges(
        [paths.state_file, paths.file(layout.NEWEST_SAMPLES)]
        + [paths.status_file(task) for task in tasks]
    )


def _file_stamp(file: str) -> Optional[Tuple[int, int]]:
    """Return the inode and the time of a file, or None if it is missing. Writers replace the file
    by a rename, so each write changes the inode or the time."""
    try:
        file_stat = os.stat(file)
    except OSError:
        return None
    return file_stat.st_ino, file_stat.st_mtime_ns
