"""Read processes from /proc (identity, descendants, environment), and send signals to them.

A process is identified by boot id, pid and start time together; a pid alone never gets a signal. No
process is chosen by its name. Processes of other users cannot be read, so they are never chosen.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time

from tfdeploy.agent.annotations import Dict, Iterable, List, Optional, Set
from tfdeploy.agent.host import boot_id as boot_id
from tfdeploy.agent.record import NamedTuple

_SYS_PIDFD_OPEN, _SYS_PIDFD_SEND_SIGNAL = 434, 424  # the same number on every architecture
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_KTHREADD = 2
_TICKS_S = float(os.sysconf("SC_CLK_TCK"))
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TURNING_S = 0.05  # limits the wait for a process that is inside exec
_libc = ctypes.CDLL(None, use_errno=True)


class Identity(NamedTuple):
    """Identifies one process. The same pid with another start time or boot id is another
    process."""

    boot_id: str
    pid: int
    start_ticks: int


class Entry(NamedTuple):
    pid: int
    parent: int
    state: str  # R, S, D, Z, ...
    start_ticks: int
    command: str
    cpu_s: float = 0.0  # includes its children that have ended
    memory: int = 0  # resident bytes; shared memory counts for each process

    @property
    def alive(self) -> bool:
        return self.state not in "ZX"


def entry(pid: int) -> Optional[Entry]:
    """Return the process that has the pid now, even a zombie; None: there is none."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    # The command may contain parentheses, so search the last closing one.
    opening, closing = text.find("("), text.rfind(")")
    if closing < 0:
        return None
    fields = text[closing + 2 :].split()
    cpu_s, memory = sum(map(int, fields[11:15])) / _TICKS_S, int(fields[21]) * _PAGE_BYTES
    return Entry(
        pid, int(fields[1]), fields[0], int(fields[19]), text[opening + 1 : closing], cpu_s, memory
    )


def identity(pid: int) -> Optional[Identity]:
    process = entry(pid)
    return None if process is None else Identity(boot_id(), pid, process.start_ticks)


def is_alive(target: Identity) -> bool:
    """Return True if exactly this process is alive. A zombie is not alive."""
    process = entry(target.pid)
    return (
        process is not None
        and process.alive
        and process.start_ticks == target.start_ticks
        and boot_id() == target.boot_id
    )


def all_processes() -> Dict[int, Entry]:
    """Return pid -> process, for all visible processes."""
    entries: Dict[int, Entry] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            one = entry(int(name))
            if one is not None:
                entries[one.pid] = one
    return entries


def descendants(roots: Iterable[int], table: Dict[int, Entry]) -> Set[int]:
    """Return the pids of the living processes below `roots`, without the roots."""
    children: Dict[int, List[int]] = {}
    for one in table.values():
        children.setdefault(one.parent, []).append(one.pid)
    seen: Set[int] = set()
    todo = list(roots)
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in seen:
                seen.add(pid)
                todo.append(pid)
    return {pid for pid in seen if table[pid].alive}


def environment(pid: int) -> Dict[str, str]:
    """Return the environment that the process was started with; empty if this user may not read
    it."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    pairs = (word.partition(b"=") for word in entries if b"=" in word)
    return {os.fsdecode(name): os.fsdecode(text) for name, _, text in pairs}


def marked(markers: Dict[str, str], table: Dict[int, Entry]) -> Set[int]:
    """Return the pids of this user's living processes whose environment has all of `markers`.
    Raises ValueError if `markers` is empty.

    Processes of other users do not count, even though root can read them. A task that changed its
    user is found below its supervisor instead.
    """
    if not markers:
        raise ValueError("no markers: that would be everyone")
    pids: Set[int] = set()
    deadline = time.monotonic() + _TURNING_S
    for one in table.values():
        if one.alive and one.pid != os.getpid():
            env = environment(one.pid) or _soon(one, deadline)
            if all(env.get(name) == text for name, text in markers.items()) and _is_own(one.pid):
                pids.add(one.pid)
    return pids


def _is_own(pid: int) -> bool:
    try:
        return os.stat("/proc/%d" % pid).st_uid == os.geteuid()
    except OSError:
        return False


def _soon(process: Entry, deadline: float) -> Dict[str, str]:
    """Return the process's environment once /proc shows it. Empty: it has none, or does not show it
    by the deadline.

    Inside exec, a process shows neither environment nor command line for a moment. The command line
    may be read before an exec and the environment inside it, so an empty environment beside a
    command line counts only the third time.
    """
    env: Dict[str, str] = {}
    shown_times = 0
    while not env and _KTHREADD not in (process.pid, process.parent):
        shown = bool(command_line(process.pid))
        env = environment(process.pid)
        now = entry(process.pid)
        shown_times += shown
        if shown_times == 3 or now is None or not now.alive or time.monotonic() > deadline:
            break
        if not shown:
            time.sleep(0.001)
    return env


def command_line_soon(process: Entry) -> Optional[bytes]:
    """Return the process's command line once /proc shows it; empty: it shows none within 50 ms.
    None: the process has ended."""
    deadline = time.monotonic() + _TURNING_S
    while True:
        shown, now = command_line(process.pid), entry(process.pid)
        if now is None or not now.alive or now.start_ticks != process.start_ticks:
            return None
        if shown or time.monotonic() > deadline:
            return shown
        time.sleep(0.001)


def command_line(pid: int) -> bytes:
    """Return the arguments of the process, each followed by a zero byte."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read()
    except OSError:
        return b"?"  # the process belongs to another user


def send(target: Identity, signum: int) -> bool:
    """Send a signal to exactly this process, through a pidfd if the kernel supports it. Return
    False if the process has ended or may not be signalled."""
    descriptor = _libc.syscall(_SYS_PIDFD_OPEN, target.pid, 0)
    if descriptor < 0:
        return is_alive(target) and _kill(target.pid, signum)
    try:
        # The descriptor refers to one process for ever, so check the identity after opening it.
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


def send_all(pids: Iterable[int], table: Dict[int, Entry], signum: int) -> None:
    """Send a signal to the processes `pids` of `table`. A stopped process also gets SIGCONT, so
    that it can react."""
    boot = boot_id()
    for pid in pids:
        who = Identity(boot, pid, table[pid].start_ticks)
        if send(who, signum) and signum != signal.SIGKILL and table[pid].state in "Tt":
            send(who, signal.SIGCONT)


def become_subreaper(wanted: bool = True) -> None:
    """Make this process the parent of orphans below it, even if they changed their session. False:
    stop that."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Make this process get SIGKILL when `parent` dies. For a child between fork and exec."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def oom_kills() -> Optional[int]:
    """Return how many processes of this control group the kernel has killed because memory ran out;
    None: unknown."""
    groups = _control_groups()
    candidates = [("/sys/fs/cgroup/memory", groups.get("memory"), "memory.oom_control")]
    candidates.append(("/sys/fs/cgroup", groups.get(""), "memory.events"))
    for base, path, name in candidates:
        if path is not None:
            count = _oom_count(os.path.join(base, path.lstrip("/"), name))
            if count is not None:
                return count
    return None


def _control_groups() -> Dict[str, str]:
    groups: Dict[str, str] = {}
    try:
        with open("/proc/self/cgroup") as file:
            for line in file:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                for controller in controllers.split(","):
                    groups[controller] = path
    except (OSError, ValueError):
        pass
    return groups


def _oom_count(file_name: str) -> Optional[int]:
    try:
        with open(file_name) as file:
            counters = dict(line.split()[:2] for line in file if len(line.split()) >= 2)
        return int(counters["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None
