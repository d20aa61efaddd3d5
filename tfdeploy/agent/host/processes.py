"""Read processes from /proc (identity, descendants, environment), and send signals to them.

A process is identified by the boot id, the pid and the start time together. No signal is sent if
only the pid is known. Processes are never selected by name. Processes of other users cannot be
read, so they are not selected either.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time

from tfdeploy.agent.annotations import Dict, Iterable, List, Optional, Set
from tfdeploy.agent.host import boot_id as boot_id
from tfdeploy.agent.record import NamedTuple

# These system calls have the same numbers on every architecture.
_SYS_PIDFD_OPEN, _SYS_PIDFD_SEND_SIGNAL = 434, 424
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_INIT, _KTHREADD = 1, 2
_TICKS_S = float(os.sysconf("SC_CLK_TCK"))
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# In the middle of exec, /proc shows no environment of a process for a moment. _EXEC_TIMEOUT_S
# limits the wait for all such processes together. _EXEC_S limits the wait for one process once
# /proc shows its command line: on a busy host, the process may first have to wait for a CPU.
_EXEC_TIMEOUT_S, _EXEC_S = 0.2, 0.05
_libc = ctypes.CDLL(None, use_errno=True)


class Identity(NamedTuple):
    """Identifies one process. A process with the same pid but another start time or boot id is a
    different process."""

    boot_id: str
    pid: int
    start_ticks: int


class Process(NamedTuple):
    pid: int
    parent: int
    # The state as in /proc/PID/stat: R, S, D, Z, ... Exception: if only the first thread of a
    # process has ended, /proc shows Z, but the state here is S.
    state: str
    start_ticks: int
    command: str
    cpu_s: float = 0.0  # CPU time of the process and of its children that have ended
    # Resident memory in bytes; memory that processes share is counted for each of them.
    memory: int = 0

    @property
    def is_alive(self) -> bool:
        return self.state not in "ZX"


def read_file(pid: int, name: str, unreadable: bytes = b"") -> bytes:
    """Return the content of the file /proc/PID/name. Return `unreadable` if the process has ended
    or this user may not read the file."""
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read()
    except OSError:
        return unreadable


def read_process(pid: int) -> Optional[Process]:
    """Return the process that has this pid now, even if it is a zombie. Return None if there is no
    such process."""
    text = read_file(pid, "stat").decode("utf-8", "replace")
    # The name of the command may contain parentheses, so search for the last closing one.
    opening, closing = text.find("("), text.rfind(")")
    if closing < 0:
        return None
    fields = text[closing + 2 :].split()
    cpu_s, memory = sum(map(int, fields[11:15])) / _TICKS_S, int(fields[21]) * _PAGE_BYTES
    state = "S" if fields[0] == "Z" and int(fields[17]) > 1 else fields[0]
    return Process(
        pid, int(fields[1]), state, int(fields[19]), text[opening + 1 : closing], cpu_s, memory
    )


def read_identity(pid: int) -> Optional[Identity]:
    process = read_process(pid)
    return None if process is None else Identity(boot_id(), pid, process.start_ticks)


def is_alive(target: Identity) -> bool:
    """Return True if the process with exactly this identity is alive. A zombie does not count as
    alive."""
    process = read_process(target.pid)
    return (
        process is not None
        and process.is_alive
        and process.start_ticks == target.start_ticks
        and boot_id() == target.boot_id
    )


def all_processes() -> Dict[int, Process]:
    """Return pid -> process, for all visible processes."""
    pids = map(int, filter(str.isdigit, os.listdir("/proc")))
    return {process.pid: process for process in filter(None, map(read_process, pids))}


def descendants(roots: Iterable[int], process_by_pid: Dict[int, Process]) -> Set[int]:
    """Return the pids of the living processes that are descendants of the processes `roots`. The
    roots themselves are not included."""
    children: Dict[int, List[int]] = {}
    for process in process_by_pid.values():
        children.setdefault(process.parent, []).append(process.pid)
    collected = set()
    todo = list(roots)
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in collected:
                collected.add(pid)
                todo.append(pid)
    return {pid for pid in collected if process_by_pid[pid].is_alive}


def read_environment(pid: int) -> Dict[str, str]:
    """Return the environment with which the process was started. The result is empty if this user
    may not read it."""
    pairs = (word.partition(b"=") for word in read_file(pid, "environ").split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(text) for name, equals, text in pairs if equals}


def find_by_environment(variables: Dict[str, str], process_by_pid: Dict[int, Process]) -> Set[int]:
    """Return the pids of this user's living processes whose environment contains all variables in
    `variables`. Raises ValueError if `variables` is empty.

    Processes of other users are not returned, even if this user is root and could read them. So a
    task's process that has changed its user must be found as a descendant of the task's supervisor.
    """
    if not variables:
        raise ValueError("no variables, so every process of this user would match")
    pids = set()
    deadline = time.monotonic() + _EXEC_TIMEOUT_S
    for process in process_by_pid.values():
        if process.is_alive and process.pid != os.getpid():
            env = read_environment(process.pid) or _await_environment(process, deadline)
            if variables.items() <= env.items() and _is_own_process(process.pid):
                pids.add(process.pid)
    return pids


def _is_own_process(pid: int) -> bool:
    try:
        return os.stat("/proc/%d" % pid).st_uid == os.geteuid()
    except OSError:
        return False


def _await_environment(process: Process, deadline: float) -> Dict[str, str]:
    """Return the process's environment as soon as /proc shows it. Return {} if the process has an
    empty environment, or if /proc does not show the environment before the deadline.

    In the middle of exec, for a moment /proc shows neither the environment nor the command line of
    a process. After that, for another moment, /proc shows only the command line. So an empty
    environment counts only once the command line has been shown for `_EXEC_S`.
    """
    env: Dict[str, str] = {}
    if process.pid in (_INIT, _KTHREADD) or process.parent == _KTHREADD:
        return env
    accepted_at = deadline
    while not env:
        if read_command_line(process.pid):
            accepted_at = min(accepted_at, time.monotonic() + _EXEC_S)
        env = read_environment(process.pid)
        if time.monotonic() > accepted_at or _has_no_environment(process.pid):
            break
        time.sleep(0.001)
    return env


def _has_no_environment(pid: int) -> bool:
    """Return whether /proc will never show a variable of the process. This is so if the process has
    ended, if it has overwritten its environment, or if this user may not read it."""
    shown = read_file(pid, "environ")
    if shown or not os.access("/proc/%d/environ" % pid, os.R_OK):
        return b"=" not in shown
    now = read_process(pid)
    return now is None or not now.is_alive


def await_command_line(process: Process) -> Optional[bytes]:
    """Return the process's command line as soon as /proc shows it. Return b"" if /proc shows none
    within _EXEC_TIMEOUT_S, and None if the process has ended."""
    deadline = time.monotonic() + _EXEC_TIMEOUT_S
    while True:
        shown, now = read_command_line(process.pid), read_process(process.pid)
        if now is None or not now.is_alive or now.start_ticks != process.start_ticks:
            return None
        if shown or time.monotonic() > deadline:
            return shown
        time.sleep(0.001)


def read_command_line(pid: int) -> bytes:
    """Return the command line of the process: its arguments, each followed by a zero byte. Return
    b"?" if this user may not read it."""
    return read_file(pid, "cmdline", unreadable=b"?")


def send_signal(target: Identity, signum: int) -> bool:
    """Send a signal to the process with exactly this identity. A pidfd is used if the kernel
    supports it. Return False if the process has ended or this user may not send it signals."""
    descriptor = _libc.syscall(_SYS_PIDFD_OPEN, target.pid, 0)
    if descriptor < 0:
        return is_alive(target) and _kill(target.pid, signum)
    try:
        # The pidfd always refers to the same process, so the identity is checked after it has been
        # opened.
        if not is_alive(target):
            return False
        if _libc.syscall(_SYS_PIDFD_SEND_SIGNAL, descriptor, int(signum), None, 0) == 0:
            return True
        return ctypes.get_errno() == 38 and is_alive(target) and _kill(target.pid, signum)
    finally:
        os.close(descriptor)


def _kill(pid: int, signum: int) -> bool:
    try:
        os.kill(pid, signum)
    except OSError:
        return False
    return True


def send_signals(pids: Iterable[int], process_by_pid: Dict[int, Process], signum: int) -> None:
    """Send a signal to the processes with these pids; `process_by_pid` contains their identities. A
    stopped process also gets SIGCONT, so that it can react to the signal."""
    boot = boot_id()
    for pid in pids:
        target = Identity(boot, pid, process_by_pid[pid].start_ticks)
        if (
            send_signal(target, signum)
            and signum != signal.SIGKILL
            and process_by_pid[pid].state in "Tt"
        ):
            send_signal(target, signal.SIGCONT)


def become_subreaper(is_on: bool = True) -> None:
    """Make orphans among this process's descendants become its children, even if they have their
    own session. If `is_on` is False, turn this off again."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Make the kernel send SIGKILL to this process when its parent dies. Called in a child between
    fork and exec. `parent`: the pid of the parent."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def count_oom_kills() -> Optional[int]:
    """Return how many processes of this control group the kernel has killed because there was no
    memory left. Return None if this is unknown."""
    groups = _control_groups()
    for base, path, name in (
        ("/sys/fs/cgroup/memory", groups.get("memory"), "memory.oom_control"),
        ("/sys/fs/cgroup", groups.get(""), "memory.events"),
    ):
        if path is not None:
            count = _read_oom_count(os.path.join(base, path.lstrip("/"), name))
            if count is not None:
                return count
    return None


def _control_groups() -> Dict[str, str]:
    groups = {}
    try:
        with open("/proc/self/cgroup") as file:
            for line in file:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                for controller in controllers.split(","):
                    groups[controller] = path
    except (OSError, ValueError):
        pass
    return groups


def _read_oom_count(file_name: str) -> Optional[int]:
    try:
        with open(file_name) as file:
            counters = dict(line.split()[:2] for line in file if len(line.split()) >= 2)
        return int(counters["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None
