"""Find the processes of a lab by pid and start time or by their mark, never by name, and end them.

The mark is the variable TFDEPLOY_LAB in a process's environment. Its value is the lab's root
folder, or <root>/<host>.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tfdeploy.agent.host import processes
from tfdeploy.agent.host.processes import Identity
from tfdeploy.errors import SurvivorsLeft

MARK = "TFDEPLOY_LAB"
POLL_S = 0.01  # seconds between two rounds of SIGKILL
END_TIMEOUT_S = 20.0  # the longest time for which end_all waits


def identify(pid: int) -> Identity | None:
    """Return the identity of the process with that pid, or None if the process has ended.

    A zombie counts as ended.
    """
    identity = processes.read_identity(pid)
    return identity if is_alive(identity) else None


def is_alive(process: Identity | None) -> bool:
    return process is not None and processes.is_alive(process)


def find_marked(root: str, *, include_nested: bool = True) -> set[int]:
    """Return the pids of the living processes whose mark is the path `root`.

    `include_nested`: True to include processes whose mark begins with `root`/.
    """
    living = [pid for pid, process in processes.all_processes().items() if process.is_alive]
    marks = {pid: processes.read_environment(pid).get(MARK, "") for pid in living}
    return {
        pid
        for pid, mark in marks.items()
        if mark == root or (include_nested and mark.startswith(f"{root}/"))
    }


def with_descendants(pids: Iterable[int]) -> set[int]:
    """Return the pids of those processes that still live, and of their descendants."""
    table = processes.all_processes()
    living = {pid for pid in pids if pid in table and table[pid].is_alive}
    return living | processes.descendants(living, table)


def _own_ancestry() -> set[int]:
    """Return the pids of this process and of its ancestors."""
    line, current = set[int](), processes.read_process(os.getpid())
    while current is not None and current.pid not in line:
        line.add(current.pid)
        current = processes.read_process(current.parent)
    return line


def send_kill(pid: int) -> None:
    """Send SIGKILL to the process, but never to a later process with the same pid."""
    identity = processes.read_identity(pid)
    if identity is not None:
        processes.send_signal(identity, signal.SIGKILL)


def end_all(find: Callable[[], set[int]]) -> None:
    """Kill the processes that `find` returns. Repeat this until `find` returns none.

    This process and its ancestors are never killed. Raises SurvivorsLeft after END_TIMEOUT_S
    seconds.
    """
    deadline = time.monotonic() + END_TIMEOUT_S
    while survivors := find() - _own_ancestry():
        if time.monotonic() > deadline:
            states = ", ".join(_describe(pid) for pid in sorted(survivors))
            raise SurvivorsLeft(
                f"processes did not end: {states}", next="`ps -o pid,stat,wchan,args -p PID`"
            )
        for pid in survivors:
            send_kill(pid)
        time.sleep(POLL_S)


def _describe(pid: int) -> str:
    """Return a text that shows why a process does not end.

    For example "24691 (D, waits in zap_pid_ns_processes, descendants: 24702 24705)".
    """
    process = processes.read_process(pid)
    try:
        waits_in = Path(f"/proc/{pid}/wchan").read_text() or "user space"
    except OSError:
        waits_in = "unknown"
    below = " ".join(map(str, sorted(with_descendants({pid}) - {pid}))) or "none"
    state = process.state if process else "gone"
    return f"{pid} ({state}, waits in {waits_in}, descendants: {below})"
