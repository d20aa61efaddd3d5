"""How much room a disk has left."""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

MOST_FREE = (1 << 63) - 1  # the largest number that the other side reads; s3fs says more


def free_of(path: str) -> Answer:
    """What is left on the disk of `path`, or of the nearest folder above it. Raises OSError."""
    while True:
        try:
            found = os.statvfs(path)
        except (FileNotFoundError, NotADirectoryError):
            path = os.path.dirname(path) or "/"
            continue
        free_inodes = min(found.f_favail, MOST_FREE) if found.f_files else None
        return {"free_bytes": min(found.f_bavail * found.f_frsize, MOST_FREE), "free_inodes": free_inodes}
