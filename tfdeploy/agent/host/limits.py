"""Read the limits of this user's processes: the limits that `ulimit` shows, the available memory,
and the space in /dev/shm and in the temporary folder."""

from __future__ import annotations

import os
import re
import resource

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Optional
from tfdeploy.agent.host.disk import MOST_FREE, free_space

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

# name in the report, similar to what `ulimit` prints -> number of the limit in the system
_NAMES = {
    "open files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "address space": resource.RLIMIT_AS,
    "file size": resource.RLIMIT_FSIZE,
    "CPU seconds": resource.RLIMIT_CPU,
}


def soft_limits() -> Dict[str, int]:
    """Return name -> soft limit, for each limit that is set. Amounts of memory and file sizes are
    in bytes. Tasks inherit these limits from the SSH session."""
    limits_by_name = {name: resource.getrlimit(number)[0] for name, number in _NAMES.items()}
    return {
        name: min(value, MOST_FREE)
        for name, value in limits_by_name.items()
        if value != resource.RLIM_INFINITY
    }


def available_memory() -> Optional[int]:
    """Return how much memory new processes can use: the smallest amount that is left on the machine
    or in a control group of this session. Return None if it is unknown."""
    free_bytes = _available_on_machine("/proc/meminfo")
    left = [
        each
        for each in [free_bytes, *_available_in_groups("/proc/self/cgroup", "/sys/fs/cgroup")]
        if each is not None
    ]
    return min(left) if left else None


def _available_on_machine(meminfo: str) -> Optional[int]:
    match = re.search(r"MemAvailable:\s+(\d+) kB", _read_text(meminfo))
    return int(match.group(1)) * 1024 if match else None


def _available_in_groups(cgroup_file: str, cgroup_root: str) -> List[Optional[int]]:
    """Return how much memory is left in each control group of this process that has a limit. Only
    the unified hierarchy (cgroup v2) is read. Inactive cached files count as free."""
    match = re.search(r"^0::(/.*)$", _read_text(cgroup_file), re.MULTILINE)
    group = match.group(1).rstrip("/") if match else ""
    left: List[Optional[int]] = []
    while group:
        folder = cgroup_root + group
        most, used = (
            _read_text(folder + "/memory.max").strip(),
            _read_text(folder + "/memory.current").strip(),
        )
        cached = re.search(
            r"^inactive_file (\d+)$", _read_text(folder + "/memory.stat"), re.MULTILINE
        )
        if most.isdigit() and used.isdigit():
            left.append(max(0, int(most) - int(used) + (int(cached.group(1)) if cached else 0)))
        group = os.path.dirname(group).rstrip("/")
    return left


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            return lines.read(1 << 16)
    except OSError:
        return ""


def folder_space(path: str) -> Optional[Answer]:
    """Return the free space in a folder of the system, and whether this user can write there.
    Return None if the folder does not exist."""
    try:
        free = free_space(path).free_bytes if os.path.isdir(path) else None
    except OSError:
        return None
    return (
        None
        if free is None
        else {"path": path, "writable": os.access(path, os.W_OK | os.X_OK), "free_bytes": free}
    )


def temporary_folder() -> str:
    """Return the folder in which programs of this user create temporary files. Nothing guarantees
    that they can use it."""
    return next(
        (os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)), "/tmp"
    )
