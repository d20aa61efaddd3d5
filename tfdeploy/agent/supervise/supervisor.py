"""The parent process of one task: it starts the program, copies its output from two pipes into the
log, reaps it, and writes its status. It is small and does not load TLS.

It outlives serve and the minder, and starts a minder when none is alive. It decides nothing about
the run. On SIGTERM it ends the task as stop.json says. It exits only after all processes of its
task have ended.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, List, Optional, Tuple
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.log.format import LogWriter
from tfdeploy.agent.run import clock, task_processes
from tfdeploy.agent.run.folder import NO_REASON, RunPaths
from tfdeploy.agent.supervise import spawn
from tfdeploy.agent.supervise.ensure_minder import CHECK_S, FolderWatch, MinderWatch
from tfdeploy.agent.supervise.readiness import Readiness

if TYPE_CHECKING:
    from tfdeploy.agent.log.redact import Mask


LEFTOVER_GRACE_S = 2.0  # grace time for the processes of a program that ended by itself
_READ_BYTES = 1 << 20  # limits one read from a pipe, and is the pipes' capacity
_F_SETPIPE_SZ = 1031
_FLUSH_S = 2.0  # the shortest pause between two status writes that only report a growing log
_LOOK_S = 0.1  # the pause between two checks while processes must end
_SAVE_FOR_S = 600.0  # limits the retries to write the last status on a full disk


class Supervisor:
    def __init__(self, paths: RunPaths, task: str, attempt: int, round_number: int = 1) -> None:
        self.paths = paths
        self.firewall = paths.hold_firewall()  # for as long as this process lives
        self.part = paths.part()
        self.spec = wire.whole_words(
            next(spec for spec in self.part.tasks if spec.task == task), self.part.texts
        )
        self.attempt = attempt
        self.folder = paths.task_dir(task)
        self.log = LogWriter(self.folder, self.spec.log_max_bytes)
        self.log_began = self.log.end
        self.log.lost_bytes = paths.status(task).log_lost_bytes  # from earlier attempts
        self.secrets = paths.secrets()
        self.mask = _mask(self.secrets)
        left, self.guard = _inherited(self.part, self.spec.port)
        self.minder_watch = MinderWatch(paths, self.part, left)
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
        self.pipes: Dict[int, int] = {}  # descriptor -> stream
        self.poll = select.poll()
        self.born = time.monotonic()
        self.oom_before = processes.oom_kills()
        self.main_ended = False
        self.term_received = False
        self.folder_watch = FolderWatch(self.folder)
        self.stopping = False  # True if SIGTERM came while the program ran
        self.failure: Optional[str] = None  # a failure that the exit code does not show
        self.kill_at: Optional[float] = None
        self.next_look = self.next_flush = self.next_minder = self.next_count = self.born

    # --- the life of one attempt

    def run(self) -> None:
        wakeup = self._listen_to_signals()
        self._save()
        self._start()
        self.poll.register(wakeup, select.POLLIN)
        while not self._over():
            for descriptor, _ in self.poll.poll(self._wait_ms()):
                if descriptor == wakeup:
                    os.read(wakeup, 4096)
                else:
                    self._drain(descriptor)
            if self.term_received:
                self._stop()
            self._reap()
            self._tick(time.monotonic())
        self._finish()

    def _listen_to_signals(self) -> int:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: setattr(self, "term_received", True))
        for ignored in (signal.SIGHUP, signal.SIGINT):
            signal.signal(ignored, signal.SIG_IGN)
        return reading

    def _start(self) -> None:
        env = spawn.environment(self.paths, self.spec, self.attempt, os.environ, self.secrets)
        self.status.started = clock.now(self.part)
        self.born = time.monotonic()
        try:
            kept = () if self.guard is None else (self.guard,)
            pid, out, err = spawn.spawn(self.spec.argv, env, self.paths.cwd_of(self.spec), kept)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.main_ended = True
            self.failure = "cannot start %s: %s" % (self.spec.argv[0], error)
            return
        who = processes.identity(pid)
        self.status.pid, self.status.start_ticks = pid, who.start_ticks if who else None
        for stream, descriptor in enumerate((out, err)):
            os.set_blocking(descriptor, False)
            try:
                fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _READ_BYTES)
            except OSError:
                pass  # above the user's limit; the default size is enough
            self.pipes[descriptor] = stream
            self.poll.register(descriptor, select.POLLIN | select.POLLHUP)
        self._journal("started", pid=pid, argv=self.spec.argv)
        self._save()

    def _drain(self, descriptor: int) -> bool:
        """Read once from the pipe into the log. Return False if nothing can be read now."""
        try:
            chunk = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if chunk:
            stream = self.pipes[descriptor]
            self._write(stream, chunk if self.mask is None else self.mask.feed(stream, chunk))
            return True
        self.poll.unregister(descriptor)
        os.close(descriptor)
        del self.pipes[descriptor]
        return False

    def _write(self, stream: int, chunk: bytes) -> None:
        if chunk:
            self.log.append(chunk, stream, self.attempt, time.time())

    def _reap(self) -> None:
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.next_count = 0.0
            if pid == self.status.pid:
                self._main_ended(code)

    def _main_ended(self, code: int) -> None:
        self.main_ended = True
        status = self.status
        if os.WIFSIGNALED(code):
            status.signal, status.outcome = os.WTERMSIG(code), "killed"
            after = processes.oom_kills()
            if status.signal == signal.SIGKILL and after is not None and after != self.oom_before:
                status.reason = "out of memory"
        else:
            status.exit_code = os.WEXITSTATUS(code)
            status.outcome = "succeeded" if status.exit_code == 0 else "failed"
            status.up = status.up or (status.exit_code == 0 and not self.ready.awaits_port)
        if self.kill_at is None:
            self._end_within(LEFTOVER_GRACE_S)

    # --- by the clock

    def _wait_ms(self) -> int:
        due = min(
            self.next_look,
            self.next_minder,
            self.next_flush if self._flush_due() else self.next_minder,
        )
        return max(0, int((due - time.monotonic()) * 1000) + 1)

    def _flush_due(self) -> bool:
        return not self.saved or (self.status.log_bytes, self.status.log_lost_bytes) != (
            self.log.end,
            self.log.lost_bytes,
        )

    def _tick(self, now: float) -> None:
        if now >= self.next_look:
            self._check_orders(now)
        if now >= self.next_flush and self._flush_due():
            self._save()
        if now >= self.next_minder:
            self.next_minder = now + CHECK_S
            self.minder_watch.ensure()
            self.term_received = self.term_received or self.folder_watch.is_gone(now)

    def _check_orders(self, now: float) -> None:
        age = now - self.born
        if self.main_ended or self.kill_at is not None:
            self.next_look = now + _LOOK_S
            if self.kill_at is not None and now >= self.kill_at:
                self._signal_all(signal.SIGKILL)
            return
        self.next_look = now + (3600.0 if self.status.up else 0.25 if age < 15 else 1.0)
        if self.status.up:
            return
        pids = processes.descendants([os.getpid()], processes.all_processes())
        if self.ready.is_up(pids, age):
            self.status.up, self.status.state = True, "running"
            self._journal("up")
            self._save()
        elif self.ready.too_late(age):
            self.failure = self.ready.too_late(age)
            self._end_within(self.part.stop_grace_s)

    def _stop(self) -> None:
        """Handle SIGTERM. A second SIGTERM may shorten the grace time."""
        self.term_received = False
        if not self.main_ended and self.failure is None:
            self.stopping = True
        order = self.paths.stop_order(self.spec.task)
        self._end_within(self.part.stop_grace_s if order is None else order["grace_s"])

    def _end_within(self, grace_s: float) -> None:
        kill_at = time.monotonic() + grace_s
        if self.kill_at is None:
            self.kill_at = kill_at
            self._signal_all(signal.SIGTERM)
        self.kill_at = min(self.kill_at, kill_at)
        self.next_look = min(self.next_look, self.kill_at, time.monotonic() + _LOOK_S)

    def _signal_all(self, number: int) -> None:
        pids, table = task_processes.members(self.paths, [self.spec.task])
        pids |= processes.descendants([os.getpid()], table)
        processes.send_all(pids, table, number)

    # --- the end

    def _over(self) -> bool:
        """True if the program and all its remaining processes have ended."""
        now = time.monotonic()
        if not self.main_ended or now < self.next_count:
            return False
        self.next_count = now + _LOOK_S
        pids, table = task_processes.members(self.paths, [self.spec.task])
        return not (pids | processes.descendants([os.getpid()], table))

    def _finish(self) -> None:
        for descriptor in list(self.pipes):
            while descriptor in self.pipes and self._drain(descriptor):
                pass
        if self.mask is not None:
            for stream in (0, 1):
                self._write(stream, self.mask.rest(stream))
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
            self._explain()
        status.state, status.ended = "ended", clock.now(self.part)
        status.lived_s = round(time.monotonic() - self.born, 3)
        self.log.close()
        self._journal(
            "ended",
            outcome=status.outcome,
            exit_code=status.exit_code,
            signal=status.signal,
            reason=status.reason,
        )
        give_up = time.monotonic() + _SAVE_FOR_S
        while not self._save() and time.monotonic() < give_up:
            time.sleep(1.0)

    def _restore_links(self) -> None:
        """Restore the links before the status reports the end of the attempt, because the next
        attempt needs them."""
        if self.paths.replaced_links(self.part.keep):
            # Imported here because it is seldom needed, and would delay each start by several ms.
            from tfdeploy.agent.run import keep_links

            keep_links.log_restored(
                self.log, self.attempt, keep_links.restore(self.paths, self.part.keep)
            )

    def _save(self) -> bool:
        """Write the status, and return whether it is saved. A full disk does not stop the task; the
        write is retried."""
        self.next_flush = time.monotonic() + _FLUSH_S
        self.status.log_bytes, self.status.log_lost_bytes = self.log.end, self.log.lost_bytes
        try:
            self.paths.write_status(self.status)
            self.saved = True
        except OSError:
            # If the run was purged, nothing is left to save.
            self.saved = not os.path.isdir(self.folder)
        self.paths.wake()
        return self.saved

    def _explain(self) -> None:
        """Add the reason why the program ended, from the log of this attempt. Imports its modules
        here because only failed tasks need them."""
        try:
            from tfdeploy.agent.supervise import explain

            lived_s, written = time.monotonic() - self.born, self.log.end - self.log_began
            explanation = explain.explain_failure(
                self.paths, self.part, self.status, written, lived_s
            )
            self.status.reason, self.status.error = explanation
        except Exception:  # noqa: BLE001 - the end must be recorded even without a reason
            pass

    def _journal(self, what: str, **fields: object) -> None:
        try:
            self.paths.journal(self.spec.task, what, fields, attempt=self.attempt)
        except OSError:
            pass  # the disk is full; the status is more important


def _mask(secrets: Dict[str, str]) -> "Optional[Mask]":
    """Return the object that masks secrets in the output; None: the task has no secrets. Imported
    only if needed."""
    if not secrets:
        return None
    from tfdeploy.agent.log.redact import Mask

    return Mask(secrets.values())


def _inherited(part: wire.HostPart, port: Optional[int]) -> Tuple[Dict[str, Any], Optional[int]]:
    """Return (arguments of Popen that pass the inherited sockets to a minder, the socket that keeps
    `port` closed to strangers or None).

    The task gets that socket too: its port must stay closed even after `kill -9` of the whole
    agent.
    """
    if part.protect == "none":
        return {}, None
    from tfdeploy.agent.host import descriptors

    given = descriptors.inherited_descriptors()
    return descriptors.leave(given), given.get(port or 0)


def _inode(descriptor: Optional[int]) -> Optional[int]:
    return None if descriptor is None else os.fstat(descriptor).st_ino


def main(argv: List[str]) -> int:
    """supervise HOST_DIR TASK ATTEMPT [ROUND]: run one attempt of the task."""
    os.umask(0o077)
    paths = RunPaths(argv[0])
    paths.check_owner(os.path.relpath(paths.task_dir(argv[1]), paths.host_dir))
    lock = FileLock(paths.supervisor_lock(argv[1]))
    if not lock.acquire():
        return 0
    if paths.status(argv[1]).attempt >= int(argv[2]) or paths.state().phase == "ended":
        # An attempt is never started twice. The run may also have been ended without its minder
        # meanwhile.
        return 0
    try:
        task_processes.sign(lock)
    except OSError:
        pass  # the disk is full; its processes are found by their environment
    processes.become_subreaper()
    supervisor = Supervisor(paths, argv[1], int(argv[2]), int(argv[3]) if len(argv) > 3 else 1)
    supervisor.run()
    lock.release()
    supervisor.minder_watch.ensure_until_end()
    return 0
