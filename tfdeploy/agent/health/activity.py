"""Observe the signs of life of one task: its output, its CPU time, the bytes that it reads and
writes, and the bytes on its connections. Whether the task is stalled is decided in diagnose.py.

The costly signs are observed only if the cheap ones show no activity. Small amounts do not count,
because waiting threads and heartbeats between servers are no progress.
"""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Callable, Dict, Optional, Set, Tuple
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.network.listening import socket_inodes
from tfdeploy.agent.host.network.tcp_diag import Traffic
from tfdeploy.agent.log.tf_messages import MessageReader
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.run.folder import RunPaths

BUSY_SHARE = 0.02  # A task that uses more than this share of one CPU core is busy.
# A task that moves more bytes a second than this is busy too. Each connection is counted by itself,
# and so is each process, with all its files together.
BUSY_BYTES_S = 1000.0
# While a task waits for another task, TensorFlow logs a message about this every 10 s. If the last
# message is older than WAIT_EXPIRES_S seconds, the task no longer waits.
WAIT_EXPIRES_S = 25.0


class LifeSigns(NamedTuple):
    """The signs of life of one task, as its host reports them."""

    still_s: float = 0.0  # seconds since the task was last active
    # the tasks for which this task waits, according to TensorFlow's messages in its log
    waits: Tuple[str, ...] = ()
    # for how many seconds the task has printed nothing but such messages
    waiting_s: float = 0.0
    stopped: int = 0  # pid of a process of the task that was stopped (SIGSTOP); 0: none
    disk: int = 0  # pid of a process of the task that waits for a disk (state D); 0: none
    # True if the task listens on its port. None: not checked, or the task has never listened.
    listens: Optional[bool] = None
    starting: bool = False


class ProcessUsage(NamedTuple):
    cpu_s: float
    file_bytes: int
    state: str


class TaskActivity:
    """Observes one attempt of a task (the time from one start to its end). Call `observe`
    repeatedly, always with times of the same clock (seconds). `guard`: the inode of the socket with
    which the agent guards the task's port. The task's processes inherit this socket, so it does not
    count as a socket on which the task listens."""

    def __init__(
        self, paths: RunPaths, spec: wire.TaskSpec, now: float, guard: Optional[int] = None
    ) -> None:
        self._port, self._guard = spec.port, guard
        self._messages = MessageReader(paths.task_dir(spec.task))
        self._observed_at = self._active_at = now
        self._usage: Dict[int, ProcessUsage] = {}
        self._moved: Optional[Dict[int, int]] = None
        # {awaited task: the time when this task last logged that it waits for the awaited task}
        self._waits: Dict[str, float] = {}
        self._waits_since: Optional[float] = None
        self._listened = False

    def observe(
        self,
        now: float,
        list_pids: Callable[[], Set[int]],
        read_traffic: Callable[[], Optional[Traffic]],
    ) -> LifeSigns:
        """Return the signs of life of the task. `list_pids` returns the pids of the task's
        processes, and `read_traffic` returns the traffic of the whole host. Both calls are costly,
        so they are made only if needed."""
        passed_s, self._observed_at = max(now - self._observed_at, 0.001), now
        messages = self._messages.read_new()
        listens: Optional[bool] = None
        busy = messages.has_own_output
        before, self._usage = self._usage, {}
        if not busy:
            pids = list_pids()
            self._usage = _read_usage(pids)
            busy = _is_busy(before, self._usage, passed_s)
        if busy:
            self._moved = None
        else:
            inodes = set().union(*map(socket_inodes, pids))
            listens, busy = self._observe_network(inodes, read_traffic(), passed_s)
        if busy:
            self._active_at = now
        self._update_awaited_tasks(messages.waits, messages.has_own_output, now)
        waiting_s = now - self._waits_since if self._waits_since is not None else 0.0
        return LifeSigns(
            now - self._active_at,
            tuple(self._waits),
            waiting_s,
            self._first_pid_in_state("Tt"),
            self._first_pid_in_state("D"),
            listens,
        )

    def _observe_network(
        self, inodes: Set[int], traffic: Optional[Traffic], passed_s: float
    ) -> Tuple[Optional[bool], bool]:
        """Return (whether the task listens on its port, whether data moves on its connections)."""
        if traffic is None:
            return None, False
        before, self._moved = (
            self._moved,
            {
                inode: traffic.bytes_by_inode[inode]
                for inode in inodes
                if inode in traffic.bytes_by_inode
            },
        )
        return self._is_listening(inodes, traffic), _has_traffic(before, self._moved, passed_s)

    def _is_listening(self, inodes: Set[int], traffic: Traffic) -> Optional[bool]:
        now = self._port is not None and any(
            traffic.port_by_inode.get(inode) == self._port for inode in inodes - {self._guard}
        )
        self._listened = self._listened or now
        return now if self._listened else None

    def _update_awaited_tasks(self, awaited: Tuple[str, ...], has_output: bool, now: float) -> None:
        if has_output:
            self._waits = {}
        self._waits.update(dict.fromkeys(awaited, now))
        self._waits = {
            task: last for task, last in self._waits.items() if now - last <= WAIT_EXPIRES_S
        }
        if not self._waits:
            self._waits_since = None
        elif self._waits_since is None or has_output:
            self._waits_since = now

    def _first_pid_in_state(self, states: str) -> int:
        return min((pid for pid, usage in self._usage.items() if usage.state in states), default=0)


def _is_busy(
    before: Dict[int, ProcessUsage], after: Dict[int, ProcessUsage], passed_s: float
) -> bool:
    if not before:
        return False
    nothing = ProcessUsage(0.0, 0, "")
    pairs = [(before.get(pid, nothing), now) for pid, now in after.items()]
    cpu_s = sum(now.cpu_s - then.cpu_s for then, now in pairs)
    file_bytes = max((now.file_bytes - then.file_bytes for then, now in pairs), default=0)
    return cpu_s > BUSY_SHARE * passed_s or file_bytes > BUSY_BYTES_S * passed_s


def _has_traffic(before: Optional[Dict[int, int]], after: Dict[int, int], passed_s: float) -> bool:
    return before is not None and any(
        count - before.get(inode, 0) > BUSY_BYTES_S * passed_s for inode, count in after.items()
    )


def _read_usage(pids: Set[int]) -> Dict[int, ProcessUsage]:
    return {
        process.pid: ProcessUsage(process.cpu_s, _read_io_bytes(process.pid), process.state)
        for process in filter(None, map(processes.read_process, pids))
    }


def _read_io_bytes(pid: int) -> int:
    columns = processes.read_file(pid, "io").split()
    # rchar and wchar: bytes that the process has read and written
    return int(columns[1]) + int(columns[3]) if len(columns) > 3 else 0


def living_pids(
    status: wire.TaskStatus, read_processes: Callable[[], Dict[int, processes.Process]]
) -> Set[int]:
    """Return the pids of the task's living processes, which are descendants of its supervisor.
    `read_processes` returns pid -> process, for all processes of this host."""
    if status.supervisor_pid is None:
        return set()
    return processes.descendants([status.supervisor_pid], read_processes())
