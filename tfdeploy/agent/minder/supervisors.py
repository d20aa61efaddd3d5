"""Start the supervisors of one run on this host, observe them, and order them to end their tasks. A
supervisor is the parent process of one task. Nothing is decided here."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, Optional, Tuple
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.atomic import remove_file
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.log.tf_messages import MessageReader
from tfdeploy.agent.minder.actions import LocalTask
from tfdeploy.agent.run import task_processes
from tfdeploy.agent.run.folder import RunPaths, start_agent

if TYPE_CHECKING:
    from tfdeploy.agent.host.network.guarded_ports import GuardedPorts


class Supervisors:
    def __init__(self, paths: RunPaths, part: wire.HostPart) -> None:
        self._paths = paths
        self._part = part
        # The sockets with the filters that guard the tasks' ports. Each supervisor inherits them,
        # because a port stays guarded only as long as a process has its socket.
        self.guarded: Optional[GuardedPorts] = None
        self._readers: Dict[str, MessageReader] = {}
        # Task -> the last result of `_read_task_output`.
        self._output: Dict[str, Tuple[float, Tuple[str, ...]]] = {}
        self._children: Dict[str, subprocess.Popen[bytes]] = {}
        # Task -> (attempt, round) for which its supervisor was last started. A round is one start
        # of all tasks that restart together.
        self._begun: Dict[str, Tuple[int, int]] = {}

    def start(self, task: str, attempt: int, round_number: int) -> bool:
        """Start a supervisor for the attempt. Return False if a supervisor was started for this
        attempt already."""
        if self._begun.get(task, (0, 0))[0] >= attempt:
            return False
        folder = self._paths.make_task_dir(task)
        # The previous attempt may have left its order to stop, which must not stop this attempt.
        remove_file(self._paths.stop_file(task), if_possible=True)
        arguments = ("supervise", self._paths.host_dir, task, str(attempt), str(round_number))
        log = os.path.join(folder, layout.SUPERVISOR_LOG)
        self._children[task] = start_agent(log, *arguments, **self._inherited_socket_options(task))
        self._begun[task] = attempt, round_number
        return True

    def _inherited_socket_options(self, task: str) -> Dict[str, Any]:
        """Return the arguments for Popen that make the supervisor inherit the sockets that guard
        the ports."""
        if self.guarded is None:
            return {}
        self.guarded.prepare_task_start(
            next(spec.port for spec in self._part.tasks if spec.task == task)
        )
        from tfdeploy.agent.host import descriptors

        return descriptors.popen_arguments(self.guarded.listening_descriptors())

    def reap_children(self) -> Dict[int, int]:
        """Reap the children that have ended: supervisors, orphans of dead supervisors, and the
        sampler. Return pid -> wait status."""
        ended: Dict[int, int] = {}
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            ended[pid] = code
            for child in self._children.values():
                if child.pid == pid:
                    child.returncode = code

    def observe_tasks(self, has_run_succeeded: bool = False) -> Dict[str, LocalTask]:
        """Return {task: current state} for all tasks of this host. If `has_run_succeeded` is True,
        also read the tasks' new log lines: a task that still writes output gets more time before it
        is ended."""
        now = time.monotonic()
        return {
            spec.task: self._observe_task(spec.task, now, has_run_succeeded)
            for spec in self._part.tasks
        }

    def _observe_task(self, task: str, now: float, has_run_succeeded: bool) -> LocalTask:
        # The lock is checked before the status is read. A supervisor writes its last status before
        # it releases the lock, so if the lock is free, the status that is read then is the last
        # one.
        child = self._children.get(task)
        is_supervised = is_locked(self._paths.supervisor_lock(task)) or (
            child is not None and child.returncode is None
        )
        status = self._paths.status(task)
        attempt, round_number = self._begun.get(task, (0, 1))
        unwritten = status.attempt < attempt and (
            is_supervised or attempt > 1 or status.state == "pending"
        )
        if unwritten:
            # The supervisor of this attempt has not written a status: it has just started, or it
            # died too early. So a status is constructed here.
            state = "pending" if is_supervised and attempt == 1 else "starting"
            status = wire.TaskStatus(
                self._paths.run, task, self._paths.host, attempt=attempt, state=state
            )
            status.round, status.boot_id = round_number, processes.boot_id()
        printed, waits = self._read_task_output(task, now) if has_run_succeeded else (now, ())
        return LocalTask(status, is_supervised, now - printed, not unwritten, waits)

    def _read_task_output(self, task: str, now: float) -> Tuple[float, Tuple[str, ...]]:
        """Return (when the task last logged a line of its own, the tasks for which it waits).
        TensorFlow's messages that it waits for another task are not lines of the task's own. Times
        are in monotonic seconds. For lines that were logged before the first call, the time of that
        call is returned."""
        if task not in self._readers:
            self._readers[task] = MessageReader(self._paths.task_dir(task))
        messages = self._readers[task].read_new()
        printed, waits = self._output.get(task, (now, ()))
        self._output[task] = (
            (now, ())
            if messages.has_own_output
            else (printed, tuple(dict.fromkeys(waits + messages.waits)))
        )
        return self._output[task]


def tell_supervisor_to_stop(
    paths: RunPaths, task: str, reason: str, grace_s: float, outcome: str = "stopped"
) -> None:
    """Write the reason and the grace time to stop.json, and send SIGTERM to the supervisor if it is
    alive. This function may be called again, for example with a shorter grace time."""
    order = paths.stop_order(task)
    if order is None or order["grace_s"] != grace_s:
        try:
            paths.write_stop_order(task, {"reason": reason, "grace_s": grace_s, "outcome": outcome})
        except OSError:
            pass  # the disk is full, but SIGTERM makes the supervisor end the task anyway
    supervisor = task_processes.find_live_supervisor(paths, task)
    if supervisor is not None:
        processes.send_signal(supervisor, signal.SIGTERM)
