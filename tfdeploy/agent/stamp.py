"""Compute a stamp of a folder, which shows whether anything in it was written since it was
listed."""

from __future__ import annotations

import hashlib
import os
import stat

from tfdeploy.agent.listing import entries


class Stamp:
    """A hash of names, inodes, sizes and times. Changes with any write to a file. Detects more
    changes than a digest, and is valid on one machine only."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()

    def add_file(self, path: bytes, file_stat: os.stat_result) -> None:
        self._sum.update(
            b"%s\0%d %d %d %d\0"
            % (
                path,
                file_stat.st_ino,
                file_stat.st_size,
                file_stat.st_mtime_ns,
                file_stat.st_ctime_ns,
            )
        )

    def __str__(self) -> str:
        return self._sum.hexdigest()


def stamp_of(path: str) -> str:
    """Return the stamp of a folder or of one file. Raises OSError."""
    stamp, encoded = Stamp(), os.fsencode(path)
    for name, about in (
        entries(encoded) if os.path.isdir(path) else [(os.path.basename(encoded), os.lstat(path))]
    ):
        if not stat.S_ISDIR(about.st_mode):
            stamp.add_file(name, about)
    return str(stamp)
