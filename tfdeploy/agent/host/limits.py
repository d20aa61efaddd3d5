"""Read the limits of this user's processes: the limits that `ulimit` shows, the available memory,
and the space in /dev/shm and in the temporary folder."""

from __future__ import annotations

import os
import re
import resource

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Optional
from tfdeploy.agent.host.atomic import read_text
from tfdeploy.agent.host.disk import MOST_FREE, free_space

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

# For each limit: its name in the report (similar to what `ulimit` prints) -> its number in the
# system.
_NAMES = {
    "open files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "address space": resource.RLIMIT_AS,
    "file size": resource.RLIMIT_FSIZE,
    "CPU seconds": resource.RLIMIT_CPU,
}


def read_soft_limits() -> Dict[str, int]:
    """Return name -> soft limit, for each limit that is set. Amounts of memory and file sizes are
    in bytes. Tasks inherit these limits from the SSH session."""
    limits_by_name = {name: resource.getrlimit(number)[0] for name, number in _NAMES.items()}
    return {
        name: min(value, MOST_FREE)
        for name, value in limits_by_name.items()
        if value != resource.RLIM_INFINITY
    }


def available_memory_bytes() -> Optional[int]:
    """Return how much memory new processes can use: the smallest amount that is left on the machine
    or in a control group of this session. Return None if it is unknown."""
    available = _available_bytes_in_cgroups("/proc/self/cgroup", "/sys/fs/cgroup")
    free_kib = _read_number("/proc/meminfo", r"MemAvailable:\s+(\d+) kB")
    if free_kib is not None:
        available.append(free_kib * 1024)
    return min(available, default=None)


def _available_bytes_in_cgroups(cgroup_file: str, cgroup_root: str) -> List[int]:
    """Return how much memory is left in each control group of this process that has a limit. Only
    the unified hierarchy (cgroup v2) is read. Inactive cached files count as free."""
    match = re.search(r"^0::(/.*)$", read_text(cgroup_file), re.MULTILINE)
    group = match.group(1).rstrip("/") if match else ""
    available = []
    while group:
        folder = cgroup_root + group
        limit, used = _read_number(folder + "/memory.max"), _read_number(folder + "/memory.current")
        if limit is not None and used is not None:
            cached = _read_number(folder + "/memory.stat", r"^inactive_file (\d+)$") or 0
            available.append(max(0, limit - used + cached))
        group = os.path.dirname(group).rstrip("/")
    return available


def _read_number(path: str, pattern: str = r"^(\d+)$") -> Optional[int]:
    """Return the number that the first group of the pattern finds in a file, or None."""
    match = re.search(pattern, read_text(path), re.MULTILINE)
    return int(match.group(1)) if match else None


def read_space_and_access(path: str) -> Optional[Answer]:
    """Return the free space in a folder of the system, and whether this user can write there.
    Return None if the folder does not exist."""
    try:
        free_bytes = free_space(path).free_bytes
    except OSError:
        return None
    if not os.path.isdir(path):
        return None
    return {
        "path": path,
        "writable": os.access(path, os.W_OK | os.X_OK),
        "free_bytes": free_bytes,
    }


def temporary_folder() -> str:
    """Return the folder in which programs of this user create temporary files. The folder may be
    missing or not writable."""
    return next(filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))), "/tmp")
