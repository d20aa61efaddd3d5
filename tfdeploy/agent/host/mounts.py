"""Find the file system on which a folder lies."""

from __future__ import annotations

import os
import re

from tfdeploy.agent.annotations import TYPE_CHECKING, List, Optional

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

MOUNTS = "/proc/self/mounts"
_LONGEST = 4000


def read_mounts(mounts: str = MOUNTS) -> List[List[str]]:
    """Return [source, mount point, type, options, ...] of each mount, including bind mounts. Raises
    OSError."""
    with open(mounts, encoding="utf-8", errors="surrogateescape") as lines:
        return [[_unescape(word) for word in line.split(" ")] for line in lines]


def find_mount(path: str, mounts: str = MOUNTS) -> Optional[Answer]:
    """Return the mount on which `path` lies. `path` need not exist. Return None if the mount is
    unknown."""
    path = os.path.realpath(path)
    mount: Optional[Answer] = None
    longest = -1
    try:
        rows = read_mounts(mounts)
    except OSError:
        return None
    for row in rows:
        if len(row) < 4:
            continue
        source, point, kind, options = (_printable(word) for word in row[:4])
        # A later mount at the same point hides an earlier one.
        if len(point) >= longest and (path + "/").startswith(point.rstrip("/") + "/"):
            longest = len(point)
            mount = {
                "source": source,
                "point": point,
                "type": kind,
                "options": options.split(",")[:100],
            }
    return mount


def _printable(field: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in field)[:_LONGEST]


def _unescape(field: str) -> str:
    r"""Replace the kernel's escapes, such as \040 for a space."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code.group(1), 8)), field)
