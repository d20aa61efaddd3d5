"""Which processes belong to a lab, and how they end. By identity (pid, start time, boot) and by mark, never by name.

The mark is TFDEPLOY_LAB in the environment: the lab's root folder, or <root>/<host>.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tfdeploy.errors import SurvivorsLeft

MARK = "TFDEPLOY_LAB"
POLL_S = 0.01


@dataclass(frozen=True)
class Process:
    """The identity of one process, also after its pid is used again. `start`: clock ticks since boot."""

    pid: int
    start: int
    boot: str


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on (index 0), or [] when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def identify(pid: int) -> Process | None:
    """The process of that pid. None: it has ended (also as a zombie)."""
    fields = _stat(pid)
    return None if not fields or fields[0] in (b"Z", b"X") else Process(pid, int(fields[19]), boot_id())


def is_alive(process: Process | None) -> bool:
    return process is not None and identify(process.pid) == process


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _mark_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    prefix = MARK.encode() + b"="
    return next((os.fsdecode(word[len(prefix) :]) for word in words if word.startswith(prefix)), "")


def marked(root: str, *, below: bool = True) -> set[int]:
    """Living processes that carry the mark `root`, or one below it."""
    marks = ((pid, _mark_of(pid)) for pid in _pids())
    return {pid for pid, mark in marks if (mark == root or (below and mark.startswith(root + "/"))) and identify(pid)}


def with_descendants(pids: Iterable[int]) -> set[int]:
    """The living ones of these processes and their descendants."""
    parents = {pid: int(fields[1]) for pid in _pids() if (fields := _stat(pid)) and fields[0] not in (b"Z", b"X")}
    found = set(pids) & parents.keys()
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return found


def own_ancestry() -> set[int]:
    """This process and its ancestors."""
    line, pid = set(), os.getpid()
    while pid > 0 and pid not in line:
        line.add(pid)
        fields = _stat(pid)
        pid = int(fields[1]) if fields else 0
    return line


def send_kill(pid: int) -> None:
    """SIGKILL through a pidfd, so that a process that gets the same pid meanwhile is not killed."""
    before = identify(pid)
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if before and identify(pid) == before:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def end_all(find: Callable[[], set[int]], *, timeout_s: float = 20.0) -> None:
    """Kills what `find` finds, and looks again until it finds nothing. Raises SurvivorsLeft at the deadline."""
    deadline = time.monotonic() + timeout_s
    while found := find():
        if time.monotonic() > deadline:
            states = ", ".join(_in_words(pid) for pid in sorted(found))
            raise SurvivorsLeft(f"processes did not end: {states}", next="ps -o pid,stat,wchan,args -p PID")
        for pid in found:
            send_kill(pid)
        time.sleep(POLL_S)


def _in_words(pid: int) -> str:
    """ "24691 (D, in zap_pid_ns_processes, above 24702 24705)": why it may not end."""
    state = (_stat(pid)[:1] or [b"gone"])[0].decode()
    try:
        place = Path(f"/proc/{pid}/wchan").read_text() or "user space"
    except OSError:
        place = "unknown"
    below = " ".join(map(str, sorted(with_descendants({pid}) - {pid}))) or "nothing"
    return f"{pid} ({state}, in {place}, above {below})"
