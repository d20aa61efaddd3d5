"""Find all processes of a run or task on this host: the descendants of its supervisor, the
descendants of its program, and the processes with the run's variables in their environment.

All three searches are needed, because a program can leave its session, be orphaned, or clear its
environment. The supervisors and the minder are never part of the result.
"""

from __future__ import annotations

import os
import signal
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterable,
    List,
    Optional,
    Set,
    Tuple,
)
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.atomic import read_start
from tfdeploy.agent.host.flock import FileLock, is_locked
from tfdeploy.agent.run.folder import RunPaths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

    # The ids of the found processes, and the table of all processes from which they were taken.
    FoundProcesses = Tuple[Set[int], Dict[int, processes.Process]]

# This environment variable contains the path of the run's folder on the host. The path
# distinguishes runs with the same name in different workdirs.
FOLDER_MARKER = "TFDEPLOY_TASK_FOLDER"
_PATIENCE_S = 5.0  # how long processes may take to end after KILL


def environment_markers(paths: RunPaths, task: Optional[str] = None) -> Dict[str, str]:
    """Return the environment variables by which the processes of the run on this host are
    recognised. If `task` is given, only the processes of this task have all of these variables."""
    variables = {wire.MARKER: paths.run, FOLDER_MARKER: os.path.realpath(paths.host_dir)}
    if task is not None:
        variables["TFDEPLOY_TASK_ROLE"], variables["TFDEPLOY_TASK_INDEX"] = task.split(":")
    return variables


def find_live_supervisor(paths: RunPaths, task: str) -> Optional[processes.Identity]:
    """Return the identity of a task's supervisor, or None if the supervisor is not alive. The
    supervisor writes its identity to its lock file. If a full disk prevented that, the pid in the
    task's status is used."""
    path = paths.supervisor_lock(task)
    try:
        boot_id, pid, start_ticks = read_start(path, 200).decode("ascii", "replace").split()
        supervisor: Optional[processes.Identity] = processes.Identity(
            boot_id, int(pid), int(start_ticks)
        )
    except ValueError:
        status = paths.status(task)
        has_ended = status.supervisor_pid is None or status.state in wire.OVER
        supervisor = None if has_ended else processes.read_identity(status.supervisor_pid or 0)
    is_alive = supervisor is not None and processes.is_alive(supervisor) and is_locked(path)
    return supervisor if is_alive else None


def read_minder(paths: RunPaths) -> Optional[processes.Identity]:
    """Return the identity of the run's minder process, which the run's state names. Return None if
    the minder is not alive."""
    state = paths.state()
    return _find_alive(state.boot_id, state.minder_pid, state.minder_start_ticks)


def _find_alive(
    boot_id: Optional[str], pid: Optional[int], start_ticks: Optional[int]
) -> Optional[processes.Identity]:
    """Return the identity that the arguments describe if a process with this identity is alive.
    Return None if it is dead, or if one of the arguments is None."""
    if boot_id is None or pid is None or start_ticks is None:
        return None
    identity = processes.Identity(boot_id, pid, start_ticks)
    return identity if processes.is_alive(identity) else None


def write_own_identity(lock: FileLock) -> None:
    """Write the identity of this process into the lock file `lock`. Called by a supervisor that
    holds the lock."""
    identity = processes.read_identity(os.getpid())
    if identity is not None:
        lock.write(
            ("%s %d %d\n" % (identity.boot_id, identity.pid, identity.start_ticks)).encode("ascii")
        )


def find_task_processes(paths: RunPaths, tasks: Iterable[str]) -> FoundProcesses:
    """Return the ids of the live processes of these tasks, and the process table in which they were
    found."""
    names = list(tasks)
    supervisors = {
        each.pid for each in [find_live_supervisor(paths, task) for task in names] if each
    }
    mains = [find_main_process(paths.status(task)) for task in names]
    roots = {each.pid for each in mains if each}
    table = processes.all_processes()
    if len(supervisors) < len(names):
        roots |= _find_orphans(paths, table)
    pids = processes.descendants(supervisors | roots, table) | {
        pid for pid in roots if pid in table and table[pid].is_alive
    }
    for task in names:
        pids |= processes.find_by_environment(environment_markers(paths, task), table)
    return pids - supervisors - {os.getpid()}, table


def _find_orphans(paths: RunPaths, process_by_pid: Dict[int, processes.Process]) -> Set[int]:
    """Return the ids of processes of tasks whose supervisors are dead. The minder has adopted such
    processes: they are all children of the minder that are not processes of the agent."""
    minder = read_minder(paths)
    if minder is None:
        return set()
    return {
        process.pid
        for process in process_by_pid.values()
        if process.parent == minder.pid
        and process.is_alive
        and not _is_agent_process(paths, process)
    }


def _is_agent_process(paths: RunPaths, process: processes.Process) -> bool:
    """Return whether a process belongs to the agent and not to a task. Processes of the agent are
    recognised by the run's folder in their command line. Return True also if the process has ended
    meanwhile, so that it is not taken for a process of a task."""
    # For a moment, a supervisor that is being started has no command line.
    command_line = processes.await_command_line(process)
    if command_line is None:
        return True
    folders = (
        os.fsdecode(argument) for argument in command_line.split(b"\0") if argument.startswith(b"/")
    )
    return os.path.realpath(paths.host_dir) in map(os.path.realpath, folders)


def find_main_process(status: wire.TaskStatus) -> Optional[processes.Identity]:
    """Return the identity of the task's own process, or None if that process is not alive."""
    return _find_alive(status.boot_id, status.pid, status.start_ticks)


def end_task_processes(paths: RunPaths, tasks: Iterable[str], grace_s: float) -> List[Answer]:
    """End the processes of tasks that have no live supervisor: send TERM, then KILL after `grace_s`
    seconds. Return the survivors."""
    names = list(tasks)
    return _end_processes(lambda: find_task_processes(paths, names), grace_s)


def end_leftover_processes(
    workdir: str, job: str, run: str, grace_s: float
) -> Optional[List[Answer]]:
    """End the processes of a run whose folder was removed. The run's supervisors are ended too.
    Return the survivors, or None if there were no processes."""
    if not find_processes_by_environment(workdir, job, run)[0]:
        return None
    return _end_processes(lambda: find_processes_by_environment(workdir, job, run), grace_s)


def find_processes_by_environment(
    workdir: str, job: str, run: Optional[str] = None
) -> FoundProcesses:
    """Return the ids of the live processes of a run in this workdir, and the process table. If
    `run` is None, return the processes of all runs of the job. Processes are recognised only by the
    variables in their environment."""
    above, markers = layout.runs_dir(workdir, job), {"TFDEPLOY_TASK_JOB": job}
    if run is not None:
        above, markers[wire.MARKER] = layout.run_dir(workdir, job, run), run
    table = processes.all_processes()
    within = os.path.realpath(above) + os.sep
    return {
        pid
        for pid in processes.find_by_environment(markers, table)
        if processes.read_environment(pid).get(FOLDER_MARKER, "").startswith(within)
    }, table


def _end_processes(find: Callable[[], FoundProcesses], grace_s: float) -> List[Answer]:
    pids, table = find()
    if grace_s > 0:
        processes.send_signals(pids, table, signal.SIGTERM)
    kill_at = time.monotonic() + grace_s
    while pids and time.monotonic() < kill_at + _PATIENCE_S:
        if time.monotonic() >= kill_at:
            processes.send_signals(pids, table, signal.SIGKILL)
        time.sleep(0.05)
        pids, table = find()
    return describe_survivors(pids, table)


def describe_survivors(
    pids: Iterable[int], process_by_pid: Dict[int, processes.Process]
) -> List[Answer]:
    return [
        {"pid": pid, "state": process_by_pid[pid].state, "command": process_by_pid[pid].command}
        for pid in sorted(pids)
    ]
