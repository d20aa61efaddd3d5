"""Run one attempt of a task as its supervisor, which is the parent process of the task. The
supervisor starts the program, copies its output from two pipes into the log, reaps the program, and
writes the status of the task. To stay small, it does not load TLS.

The supervisor outlives the SSH session, and may outlive the minder (the process that manages the
run on this host). If no minder is alive, the supervisor starts one. It decides nothing about the
run. On SIGTERM, it ends the task within the grace time that is in stop.json. It exits only after
all processes of the task have ended.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, List, Optional, Set, Tuple
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.log.format import LogWriter
from tfdeploy.agent.run import clock, task_processes
from tfdeploy.agent.run.folder import NO_REASON, RunPaths
from tfdeploy.agent.supervise import spawn
from tfdeploy.agent.supervise.ensure_minder import CHECK_INTERVAL_S, MinderWatch, TaskFolderWatch
from tfdeploy.agent.supervise.readiness import Readiness

if TYPE_CHECKING:
    from tfdeploy.agent.log.redact import SecretMask


# If a program has ended by itself and other processes of the task are left, they get SIGTERM, and
# SIGKILL after this many seconds.
LEFTOVER_GRACE_S = 2.0
# After a program has succeeded, the supervisor first waits this many seconds, because helpers of a
# program often end by themselves.
_LEFTOVER_PAUSE_S = 0.5
_READ_BYTES = 1 << 20  # the size of a pipe, and the most bytes of one read from it
_F_SETPIPE_SZ = 1031
# The shortest pause, in seconds, between two writes of a status in which only the size of the log
# has changed.
_FLUSH_S = 2.0
_END_CHECK_S = 0.1  # the pause between two checks whether the processes of the task have ended
_SAVE_TIMEOUT_S = 600.0  # how long writing the last status is tried again on a full disk


class Supervisor:
    def __init__(self, paths: RunPaths, task: str, attempt: int, round_number: int) -> None:
        self.paths = paths
        self.firewall = (
            paths.open_firewall_fifo()
        )  # keeps the run's firewall in place while this process lives
        self.part = paths.part()
        self.spec = wire.resolve_words(
            next(spec for spec in self.part.tasks if spec.task == task), self.part.texts
        )
        self.attempt = attempt
        self.folder = paths.task_dir(task)
        self.log = LogWriter(self.folder, self.spec.log_max_bytes)
        self.log_began = self.log.end
        # The count of lost output bytes begins with those that earlier attempts have lost, for
        # example on a full disk.
        self.log.lost_bytes = self.lost_before = paths.status(task).log_lost_bytes
        self.secrets = paths.secrets()
        self.mask = _make_mask(self.secrets)
        inherited, self.guard = _sockets_to_inherit(self.part, self.spec.port)
        self.minder_watch = MinderWatch(paths, self.part, inherited)
        self.ready = Readiness(self.spec, _inode(self.guard))
        self.status = wire.TaskStatus(
            paths.run,
            task,
            paths.host,
            attempt=attempt,
            state="starting",
            boot_id=processes.boot_id(),
            round=round_number,
            supervisor_pid=os.getpid(),
            guard_inode=_inode(self.guard),
        )
        self.saved = True
        # Descriptor of a pipe -> number of the stream (0: standard output, 1: standard error).
        self.pipes: Dict[int, int] = {}
        self.poll = select.poll()
        self.born = time.monotonic()
        self.oom_before = processes.count_oom_kills()
        self.main_ended = False
        self.term_received = False
        self.folder_watch = TaskFolderWatch(self.folder)
        self.stopping = False  # True if SIGTERM arrived before the program had ended
        # Why the attempt failed, if its exit code does not show a failure.
        self.failure: Optional[str] = None
        self.kill_at: Optional[float] = None
        self.next_check = self.next_flush = self.next_minder = self.next_count = self.born

    # --- the life of one attempt

    def run(self) -> None:
        wakeup = self._install_signal_handlers()
        self._save_status()
        self._start_program()
        self.poll.register(wakeup, select.POLLIN)
        while not self._have_all_processes_ended():
            for descriptor, _ in self.poll.poll(self._ms_until_due()):
                if descriptor == wakeup:
                    os.read(wakeup, 4096)
                else:
                    self._copy_pipe_to_log(descriptor)
            if self.term_received:
                self._handle_sigterm()
            self._reap_children()
            self._do_periodic_work(time.monotonic())
        self._finish_attempt()

    def _install_signal_handlers(self) -> int:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: setattr(self, "term_received", True))
        for ignored in (signal.SIGHUP, signal.SIGINT):
            signal.signal(ignored, signal.SIG_IGN)
        return reading

    def _start_program(self) -> None:
        env = spawn.build_environment(self.paths, self.spec, self.attempt, os.environ, self.secrets)
        self.status.started = clock.now(self.part)
        self.born = time.monotonic()
        try:
            inherited = () if self.guard is None else (self.guard,)
            cwd = self.paths.task_cwd(self.spec)
            pid, out, err = spawn.spawn_program(self.spec.argv, env, cwd, inherited)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.main_ended = True
            self.failure = "cannot start %s: %s" % (self.spec.argv[0], error)
            return
        process = processes.read_process(pid)
        self.status.pid, self.status.start_ticks = pid, process.start_ticks if process else None
        for stream, descriptor in enumerate((out, err)):
            os.set_blocking(descriptor, False)
            try:
                fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _READ_BYTES)
            except OSError:
                pass  # This user may not make the pipe larger. The default size is enough.
            self.pipes[descriptor] = stream
            self.poll.register(descriptor, select.POLLIN | select.POLLHUP)
        self._append_to_journal("started", pid=pid, argv=self.spec.argv)
        self._save_status()

    def _copy_pipe_to_log(self, descriptor: int) -> bool:
        """Read once from the pipe, and append the data to the log. Return False if there was
        nothing to read."""
        try:
            chunk = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if chunk:
            stream = self.pipes[descriptor]
            self._append_to_log(
                stream, chunk if self.mask is None else self.mask.mask_chunk(stream, chunk)
            )
            return True
        self.poll.unregister(descriptor)
        os.close(descriptor)
        del self.pipes[descriptor]
        return False

    def _append_to_log(self, stream: int, chunk: bytes) -> None:
        if chunk:
            self.log.append(chunk, stream, self.attempt, time.time())

    def _reap_children(self) -> None:
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.next_count = 0.0
            if pid == self.status.pid:
                self._record_program_end(code)

    def _record_program_end(self, code: int) -> None:
        self.main_ended = True
        status = self.status
        if os.WIFSIGNALED(code):
            status.signal, status.outcome = os.WTERMSIG(code), "killed"
            after = processes.count_oom_kills()
            if status.signal == signal.SIGKILL and after is not None and after != self.oom_before:
                status.reason = "out of memory"
        else:
            status.exit_code = os.WEXITSTATUS(code)
            status.outcome = "succeeded" if status.exit_code == 0 else "failed"
            status.up = status.up or (status.exit_code == 0 and not self.ready.awaits_port)
        if self.kill_at is None:
            if status.exit_code == 0 and self._find_processes()[0]:
                self._name_leftovers()
            self._end_task_within(LEFTOVER_GRACE_S)

    def _name_leftovers(self) -> None:
        """Wait _LEFTOVER_PAUSE_S seconds, in which helpers of the successful program may end. If
        processes of the task are left after that, name them in the status: they will be ended,
        although they may be the training."""
        time.sleep(_LEFTOVER_PAUSE_S)
        pids, table = self._find_processes()
        if pids:
            self.status.reason = (
                "it did not wait for processes that it had started, so they were ended: %s"
                % ", ".join(sorted({table[pid].command for pid in pids}))
            )

    # --- work that is due at certain times

    def _ms_until_due(self) -> int:
        due = min(self.next_check, self.next_minder)
        if self._is_status_unsaved():
            due = min(due, self.next_flush)
        return max(0, int((due - time.monotonic()) * 1000) + 1)

    def _is_status_unsaved(self) -> bool:
        return not self.saved or (self.status.log_bytes, self.status.log_lost_bytes) != (
            self.log.end,
            self.log.lost_bytes,
        )

    def _do_periodic_work(self, now: float) -> None:
        if now >= self.next_check:
            self._check_ready_or_kill(now)
        if now >= self.next_flush and self._is_status_unsaved():
            self._save_status()
        if now >= self.next_minder:
            self.next_minder = now + CHECK_INTERVAL_S
            self.minder_watch.ensure_minder()
            self.term_received = self.term_received or self.folder_watch.is_gone(now)

    def _check_ready_or_kill(self, now: float) -> None:
        age = now - self.born
        if self.main_ended or self.kill_at is not None:
            self.next_check = now + _END_CHECK_S
            if self.kill_at is not None and now >= self.kill_at:
                self._signal_all(signal.SIGKILL)
            return
        self.next_check = now + (3600.0 if self.status.up else 0.25 if age < 15 else 1.0)
        if self.status.up:
            return
        pids = processes.descendants([os.getpid()], processes.all_processes())
        if self.ready.is_up(pids, age):
            self.status.up, self.status.state = True, "running"
            self._append_to_journal("up")
            self._save_status()
        else:
            self.failure = self.ready.explain_timeout(age)
            if self.failure:
                self._end_task_within(self.part.stop_grace_s)

    def _handle_sigterm(self) -> None:
        """Handle SIGTERM: end the task within the grace time. A second SIGTERM can shorten the
        grace time of the first, but not extend it."""
        self.term_received = False
        if not self.main_ended and self.failure is None:
            self.stopping = True
        order = self.paths.stop_order(self.spec.task)
        self._end_task_within(self.part.stop_grace_s if order is None else order["grace_s"])

    def _end_task_within(self, grace_s: float) -> None:
        kill_at = time.monotonic() + grace_s
        if self.kill_at is None:
            self.kill_at = kill_at
            self._signal_all(signal.SIGTERM)
        self.kill_at = min(self.kill_at, kill_at)
        self.next_check = min(self.next_check, self.kill_at, time.monotonic() + _END_CHECK_S)

    def _signal_all(self, signal_number: int) -> None:
        processes.send_signals(*self._find_processes(), signal_number)

    def _find_processes(self) -> Tuple[Set[int], Dict[int, processes.Process]]:
        """Return (the pids of all living processes of the task, {pid: process} of all processes of
        this host)."""
        pids, table = task_processes.find_task_processes(self.paths, [self.spec.task])
        return pids | processes.descendants([os.getpid()], table), table

    # --- the end of the attempt

    def _have_all_processes_ended(self) -> bool:
        """Return True if the program and all other processes of the task have ended."""
        now = time.monotonic()
        if not self.main_ended or now < self.next_count:
            return False
        self.next_count = now + _END_CHECK_S
        return not self._find_processes()[0]

    def _finish_attempt(self) -> None:
        for descriptor in list(self.pipes):
            while descriptor in self.pipes and self._copy_pipe_to_log(descriptor):
                pass
        if self.mask is not None:
            for stream in (0, 1):
                self._append_to_log(stream, self.mask.mask_held_back(stream))
        self._restore_links()
        status = self.status
        if self.stopping:
            order = self.paths.stop_order(self.spec.task)
            status.outcome = (
                "failed" if order is not None and order["outcome"] == "failed" else "stopped"
            )
            status.reason = NO_REASON if order is None else order["reason"]
        elif self.failure is not None:
            status.outcome, status.reason = "failed", self.failure
        elif status.outcome in ("failed", "killed") and status.reason is None:
            self._add_failure_reason()
        status.state, status.ended = "ended", clock.now(self.part)
        status.lived_s = round(time.monotonic() - self.born, 3)
        self.log.close()
        self._append_to_journal(
            "ended",
            outcome=status.outcome,
            exit_code=status.exit_code,
            signal=status.signal,
            reason=status.reason,
        )
        give_up = time.monotonic() + _SAVE_TIMEOUT_S
        while not self._save_status() and time.monotonic() < give_up:
            time.sleep(1.0)

    def _restore_links(self) -> None:
        """Restore the links that the program has replaced, because the next attempt needs them.
        Called before the status says that this attempt has ended."""
        if self.paths.replaced_keep_links(self.part.keep):
            # This module is imported only here. It is seldom needed and would delay each start of a
            # supervisor by several ms.
            from tfdeploy.agent.run import keep_links

            keep_links.log_restored_links(
                self.log, self.attempt, keep_links.restore_keep_links(self.paths, self.part.keep)
            )

    def _save_status(self) -> bool:
        """Write the status to disk, and return whether this succeeded. If the disk is full, the
        task continues and a later call tries again."""
        self.next_flush = time.monotonic() + _FLUSH_S
        self.status.log_bytes, self.status.log_lost_bytes = self.log.end, self.log.lost_bytes
        try:
            self.paths.write_status(self.status)
            self.saved = True
        except OSError:
            # If the run's folder was removed, there is nothing to save any more.
            self.saved = not os.path.isdir(self.folder)
        self.paths.wake_minder()
        return self.saved

    def _add_failure_reason(self) -> None:
        """Find in the log of this attempt why the program ended, and add the reason to the status.
        Only failed tasks need the modules for this, so they are imported only here."""
        try:
            from tfdeploy.agent.supervise import explain

            lived_s, written = time.monotonic() - self.born, self.log.end - self.log_began
            self.status.reason, self.status.error = explain.explain_failure(
                self.paths, self.part, self.status, written, lived_s
            )
            if (
                self.status.reason is None
                and self.status.signal is None
                and self.log.lost_bytes > self.lost_before
            ):
                self.status.reason = "the disk of %s was full" % self.paths.host
        except Exception:  # noqa: BLE001 - the end must be recorded even without a reason
            pass

    def _append_to_journal(self, what: str, **fields: object) -> None:
        try:
            self.paths.journal(self.spec.task, what, fields, attempt=self.attempt)
        except OSError:
            pass  # the disk is full, and a line of the journal may be lost


def _make_mask(secret_by_variable: Dict[str, str]) -> "Optional[SecretMask]":
    """Return an object that masks secrets in the output of the program, or None if the task has no
    secrets. Most tasks have none, so redact.py is imported only if needed."""
    if not secret_by_variable:
        return None
    from tfdeploy.agent.log.redact import SecretMask

    return SecretMask(secret_by_variable.values())


def _sockets_to_inherit(
    part: wire.HostPart, port: Optional[int]
) -> Tuple[Dict[str, Any], Optional[int]]:
    """Return (arguments for Popen, descriptor). By the arguments, a minder inherits the sockets of
    the guarded ports. The descriptor is that of the socket that keeps `port` closed to strangers,
    or None if there is no such socket.

    The program of the task inherits this socket too, so that the port stays closed even after `kill
    -9` of all processes of the agent.
    """
    if part.protect == "none":
        return {}, None
    from tfdeploy.agent.host import descriptors

    inherited = descriptors.inherited_descriptors()
    return descriptors.popen_arguments(inherited), inherited.get(port or 0)


def _inode(descriptor: Optional[int]) -> Optional[int]:
    return None if descriptor is None else os.fstat(descriptor).st_ino


def main(argv: List[str]) -> int:
    """Run the command `supervise HOST_DIR TASK ATTEMPT ROUND`: run one attempt of the task."""
    os.umask(0o077)
    paths, task, attempt, round_number = RunPaths(argv[0]), argv[1], int(argv[2]), int(argv[3])
    paths.check_owner(os.path.relpath(paths.task_dir(task), paths.host_dir))
    lock = FileLock(paths.supervisor_lock(task))
    if not lock.acquire():
        return 0
    if paths.status(task).attempt >= attempt or paths.state().phase == "ended":
        # Another supervisor has run this attempt already, or the run has ended on this host.
        return 0
    try:
        task_processes.write_own_identity(lock)
    except OSError:
        # The disk is full. The task's processes are still found, by their environment.
        pass
    processes.become_subreaper()
    supervisor = Supervisor(paths, task, attempt, round_number)
    supervisor.run()
    lock.release()
    supervisor.minder_watch.ensure_minder_until_end()
    return 0
