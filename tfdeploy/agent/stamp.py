"""Compute the stamp of a folder. If anything in the folder is written between two stamps, the two
stamps differ."""

from __future__ import annotations

import hashlib
import os
import stat

from tfdeploy.agent.listing import walk_entries


class Stamp:
    """A hash of the names, inodes, sizes and times of files. Any write to a file changes the hash.
    So a stamp detects more changes than the digest of a listing, which contains times only in
    seconds. But a stamp is only valid on one machine."""

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


def compute_stamp(path: str) -> str:
    """Return the stamp of a folder or of one file. Raises OSError."""
    stamp, encoded = Stamp(), os.fsencode(path)
    for name, about in (
        walk_entries(encoded)
        if os.path.isdir(path)
        else [(os.path.basename(encoded), os.lstat(path))]
    ):
        if not stat.S_ISDIR(about.st_mode):
            stamp.add_file(name, about)
    return str(stamp)
