"""Run the program `quota`, and read how much space this user's quota on a file system leaves."""

from __future__ import annotations

from tfdeploy.agent.annotations import TYPE_CHECKING, List, Optional
from tfdeploy.agent.host.disk import MOST_FREE
from tfdeploy.agent.host.installed import StartedProgram, find_program

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

_KIB = 1024


def start_quota_query() -> Optional[StartedProgram]:
    """Start `quota`. Return None if the host does not have this program, because then it cannot
    report quotas."""
    return StartedProgram(["quota", "-u", "-w", "-p"]) if find_program("quota") else None


def read_quota(program: Optional[StartedProgram], source: str) -> Optional[Answer]:
    """Return how much the user's quota leaves on the file system that is mounted from `source`.
    Return None if no quota is set. The exit code is ignored, because it is 1 if the user is over
    quota."""
    out = program.read_output()[1] if program is not None else ""
    for line in out.splitlines():
        columns = line.split()
        if columns[:1] == [source] and len(columns) >= 9:
            return _parse_columns(columns[1:9])
    return None


def _parse_columns(columns: List[str]) -> Optional[Answer]:
    """Parse the columns of a line: KiB used, soft limit, hard limit, grace time; then the same four
    for the number of files. A limit of 0 means that there is no limit. A star marks a number above
    the soft limit."""
    numbers = [word.rstrip("*") for word in columns]
    if not all(word.isdigit() for word in numbers):
        return None
    used, soft, hard, _, files, soft_files, hard_files, _ = [int(word) for word in numbers]
    return {
        "left_bytes": _remaining(used * _KIB, (hard or soft) * _KIB),
        "left_files": _remaining(files, hard_files or soft_files),
        "over": bool((soft and used > soft) or (soft_files and files > soft_files)),
    }


def _remaining(used: int, limit: int) -> Optional[int]:
    return min(max(0, limit - used), MOST_FREE) if limit else None
