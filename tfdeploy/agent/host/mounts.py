"""Find the file system on which a folder lies."""

from __future__ import annotations

import os
import re

from tfdeploy.agent.annotations import TYPE_CHECKING, List, Optional

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

MOUNTS = "/proc/self/mounts"
_LONGEST = 4000


def read_mounts() -> List[List[str]]:
    """Return [source, mount point, type, options, ...] of each mount, including bind mounts. Raises
    OSError."""
    with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
        return [list(map(_unescape, line.split(" "))) for line in lines]


def find_mount(path: str) -> Optional[Answer]:
    """Return the mount on which `path` lies. `path` need not exist. Return None if the mount is
    unknown."""
    path = os.path.realpath(path)
    try:
        rows = [list(map(_printable, row[:4])) for row in read_mounts() if len(row) >= 4]
    except OSError:
        return None
    rows = [row for row in rows if (path + "/").startswith(row[1].rstrip("/") + "/")]
    if not rows:
        return None
    # A later mount at the same point hides an earlier one.
    source, point, kind, options = max(reversed(rows), key=lambda row: len(row[1]))
    return {
        "source": source,
        "point": point,
        "type": kind,
        "options": options.split(",")[:100],
    }


def _printable(field: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in field)[:_LONGEST]


def _unescape(field: str) -> str:
    r"""Replace the kernel's escapes, such as \040 for a space."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code.group(1), 8)), field)
