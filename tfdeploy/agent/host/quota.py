"""Read what this user's quota on a file system leaves, with the program `quota`."""

from __future__ import annotations

from tfdeploy.agent.annotations import TYPE_CHECKING, List, Optional
from tfdeploy.agent.host.disk import MOST_FREE
from tfdeploy.agent.host.installed import Asked, find_program

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

_KIB = 1024


def start() -> Optional[Asked]:
    """Start `quota`. None: the host does not have the program, so it cannot report quotas."""
    return Asked(["quota", "-u", "-w", "-p"]) if find_program("quota") else None


def read(asked: Optional[Asked], source: str) -> Optional[Answer]:
    """Return what the quota on the file system mounted from `source` leaves; None: no quota is set.
    The exit code is ignored, because it is 1 for a user over quota."""
    out = asked.answer()[1] if asked is not None else ""
    for line in out.splitlines():
        columns = line.split()
        if columns[:1] == [source] and len(columns) >= 9:
            return _of_words(columns[1:9])
    return None


def _of_words(columns: List[str]) -> Optional[Answer]:
    """Parse the columns: KiB used, soft limit, hard limit, grace; then the same for files. A limit
    of 0 means no limit. A star marks a number above the soft limit."""
    numbers = [word.rstrip("*") for word in columns]
    if not all(word.isdigit() for word in numbers):
        return None
    used, soft, hard, _, files, soft_files, hard_files, _ = [int(word) for word in numbers]
    return {
        "left_bytes": _left(used * _KIB, (hard or soft) * _KIB),
        "left_files": _left(files, hard_files or soft_files),
        "over": bool((soft and used > soft) or (soft_files and files > soft_files)),
    }


def _left(used: int, limit: int) -> Optional[int]:
    return min(max(0, limit - used), MOST_FREE) if limit else None
