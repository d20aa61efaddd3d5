"""Read how much space a disk has left, and check whether it is enough."""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import Optional
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.record import NamedTuple

# The largest number that the control machine accepts. Some file systems, such as s3fs, report more
# free space; this number is then sent instead.
MOST_FREE = (1 << 63) - 1


class FreeSpace(NamedTuple):
    """The space left on a disk. The details of a `disk` error contain the same fields.
    `free_inodes` is None if the file system has no fixed number of inodes."""

    free_bytes: int
    free_inodes: Optional[int]


def free_space(path: str) -> FreeSpace:
    """Return the space left on the disk that contains `path`. If `path` does not exist, use its
    nearest parent folder that exists. Raises OSError."""
    while True:
        try:
            filesystem = os.statvfs(path)
        except (FileNotFoundError, NotADirectoryError):
            path = os.path.dirname(path) or "/"
            continue
        free_inodes = min(filesystem.f_favail, MOST_FREE) if filesystem.f_files else None
        return FreeSpace(min(filesystem.f_bavail * filesystem.f_frsize, MOST_FREE), free_inodes)


def require_space(
    folder: str, purpose: str, needed_bytes: int, *, needed_inodes: int = 0, reserve: int = 0
) -> None:
    """Raise VerbError with the code `disk` if the disk of `folder` has too little space. `purpose`:
    what the space is needed for, in words. `reserve`: how many bytes must stay free."""
    free = free_space(folder)
    free = free._replace(free_bytes=max(0, free.free_bytes - reserve))
    for unit, advice, needed, available in (
        ("bytes", "free_space", needed_bytes, free.free_bytes),
        ("inodes", "free_inodes", needed_inodes, free.free_inodes),
    ):
        if available is None or needed <= available:
            continue
        raise VerbError(
            "disk",
            "%s needs %d %s more, but only %d are free" % (purpose, needed, unit, available)
            + (" besides the %d bytes that `reserve` keeps free" % reserve if reserve else ""),
            folder,
            advice,
            {"needed_bytes": needed_bytes, "needed_inodes": needed_inodes, **free._asdict()},
        )
