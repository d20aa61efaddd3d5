"""Run rsync: start it, send it file names, read its output, retry, and always end it.

`messages.py` parses the output. `transfer.py` decides what is copied.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tfdeploy.errors import HostFailed, Interrupted
from tfdeploy.machine.threads import start_thread
from tfdeploy.transport.protocols import RemoteCommand
from tfdeploy.transport.rsync import confinement, messages, running
from tfdeploy.transport.rsync.remote_shell import RemoteShell, SshCommand, Start
from tfdeploy.transport.ssh.argv import quote_for_rsync, ssh_argv
from tfdeploy.transport.ssh.closings import HELD_OFF
from tfdeploy.transport.ssh.patience import RetrySchedule
from tfdeploy.transport.ssh.target import Target

SUCCESS = (0, messages.VANISHED)
STARTS_PER_JUMP = 6  # through one jump host, at most this many ssh connections are opened at once
STDERR_BYTES = 32 << 10  # after this many bytes of error messages, later ones are dropped
END_S = 3.0  # seconds to wait for rsync after SIGTERM, and for a reader thread
MARK = "tfdeploy-rsync-begins"  # a line that the host prints just before rsync starts

_lock = threading.Lock()
_starts: dict[Target, threading.BoundedSemaphore] = {}

Progress = Callable[[int], None]


@dataclass
class RsyncProcess:
    """One run of rsync: its settings and, after `run`, its result.

    `argv`: rsync's arguments without the remote shell.
    `names`: the files to copy, or None to copy all files.
    `start`: a function that starts the remote command over an open session. If `start` is None, a
    new ssh starts the command.
    `drops_noise`: True to drop what the login shell prints.
    `totals`: (bytes sent, bytes received).
    """

    target: Target
    argv: list[str]
    names: list[bytes] | None
    on_progress: Progress | None
    max_bytes: int | None = None
    max_s: float | None = None
    # rsync can write only to this folder, if the kernel can enforce that. If None, rsync may write
    # to any folder.
    only_writable_folder: str | None = None
    start: Start | None = None
    drops_noise: bool = False
    code: int = 0
    totals: tuple[int, int] = (0, 0)
    stderr: bytes = b""
    interrupted: bool = False
    too_much: bool = False
    too_slow: bool = False

    def run(self) -> None:
        """Run rsync to its end, and set the result."""
        with contextlib.ExitStack() as until_end, contextlib.ExitStack() as until_connected:
            if self.start is None and self.target.jump is not None:
                with _lock:
                    slot = _starts.setdefault(
                        self.target.jump, threading.BoundedSemaphore(STARTS_PER_JUMP)
                    )
                until_connected.enter_context(slot)
            mark = f"{MARK}\n".encode() if self._prints_mark else b""
            shell = until_end.enter_context(RemoteShell(self._start_command, mark))
            process = self._start(shell)
            running.add_transfer(process, self.target)
            time_limit = threading.Timer(
                self.max_s or threading.TIMEOUT_MAX, self._end_overdue, (process,)
            )
            try:
                if self.max_s is not None:
                    time_limit.start()
                self._communicate(process, until_connected)
            finally:
                time_limit.cancel()
                self._reap(process)

    @property
    def _prints_mark(self) -> bool:
        """True if the host prints MARK before rsync starts."""
        return self.drops_noise or self.start is not None

    def _start_command(self, line: str) -> RemoteCommand:
        """Start a command line over the open session, or with a new ssh.

        A new ssh is used if there is no session, or if sshd allows no further channel in it.
        """
        with contextlib.suppress(HostFailed):
            if self.start is not None:
                return self.start(line)
        return SshCommand(ssh_argv(self.target), _environment(), line)

    def _start(self, shell: RemoteShell) -> subprocess.Popen[bytes]:
        """Start rsync, confined if `only_writable_folder` is set and the kernel can do that."""
        folder = self.only_writable_folder
        program, *options = self.argv
        # rsync expects the limit in KiB per second.
        limit = [f"--bwlimit={max(1, self.target.bwlimit >> 10)}"] if self.target.bwlimit else []
        path = [f"--rsync-path=echo {MARK}; exec rsync"] if self._prints_mark else []
        confining = (
            confinement.confining_command(folder)
            if folder is not None and confinement.can_confine()
            else []
        )
        remote_shell = quote_for_rsync(confinement.remote_shell_command(shell.theirs.fileno()))
        process = subprocess.Popen(
            [*confining, program, "-e", remote_shell, *limit, *path, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=confinement.rsync_environment(),
            pass_fds=(shell.theirs.fileno(),),
            # In a process session of its own, rsync gets no SIGINT when the user types Ctrl-C, and
            # ssh cannot ask for a password on the terminal.
            start_new_session=True,
        )
        shell.begin()
        return process

    def _communicate(
        self, process: subprocess.Popen[bytes], until_connected: contextlib.ExitStack
    ) -> None:
        """Read all output. At the first output, close `until_connected`, because ssh is connected.

        If the target has a jump host, `until_connected` holds a slot, which limits how many ssh
        connections are opened at once through this jump host.
        """
        threads = [start_thread(work, process) for work in (self._send_names, self._read_stderr)]
        assert process.stdout is not None
        unfinished = b""
        while block := os.read(process.stdout.fileno(), 1 << 16):
            until_connected.close()
            *lines, unfinished = re.split(rb"[\r\n]", unfinished + block)
            unfinished = unfinished[-4096:]
            self._update_totals(lines)
            if self.too_much:
                running.send_signal(process, signal.SIGTERM)
        self._update_totals([unfinished])
        self.code = process.wait()
        for thread in threads:
            thread.join(END_S)

    def _end_overdue(self, process: subprocess.Popen[bytes]) -> None:
        """End rsync because it has run for more than `max_s` seconds."""
        self.too_slow = True
        running.send_signal(process, signal.SIGTERM)

    def _update_totals(self, lines: list[bytes]) -> None:
        """Update the progress and the totals from these lines of rsync's output."""
        done_bytes = None
        for line in lines:
            done = messages.parse_progress(line)
            done_bytes = done_bytes if done is None else done
            self.totals = messages.parse_totals(line) or self.totals
        if done_bytes is None:
            return
        if self.max_bytes is not None and done_bytes > self.max_bytes:
            self.too_much = True
        if self.on_progress is not None:
            self.on_progress(done_bytes)

    def _send_names(self, process: subprocess.Popen[bytes]) -> None:
        """Write the names of the files to copy to rsync's input."""
        assert process.stdin is not None
        with contextlib.suppress(OSError), process.stdin as pipe:
            for name in self.names or ():
                # Without ./, rsync would treat a name that begins with # or ; as a comment.
                pipe.write(b"./" + name + b"\0")

    def _read_stderr(self, process: subprocess.Popen[bytes]) -> None:
        """Read rsync's error messages to their end, and store the first STDERR_BYTES of them."""
        assert process.stderr is not None
        while block := os.read(process.stderr.fileno(), 1 << 14):
            if len(self.stderr) < STDERR_BYTES:
                self.stderr += block

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        """End rsync if it still runs, and close its pipes."""
        if process.poll() is None:
            running.send_signal(process, signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                running.send_signal(process, signal.SIGKILL)
                process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        self.interrupted = running.remove_transfer(process)


def run_rsync_with_retries(settings: RsyncProcess) -> RsyncProcess:
    """Run rsync with these settings, with retries. Return the last run. Raises Interrupted.

    The transfer is retried while sshd closes the connection before login. If output of the login
    shell disturbed rsync, the transfer is retried once, and the retry drops this output.
    """
    drops_noise = False
    # ssh does not show why sshd closed the connection. HELD_OFF, the case with the longest retries
    # in closings.py, is assumed. The operator gets no notice, because a session to the same host
    # was accepted just before.
    patience = RetrySchedule(lambda text: None)
    while True:
        rsync = replace(settings, drops_noise=drops_noise)
        rsync.run()
        if rsync.code in SUCCESS or rsync.too_much or rsync.too_slow:
            break
        if rsync.interrupted:
            raise Interrupted(
                "the transfer was interrupted", where=rsync.target.name or rsync.target.where
            )
        if messages.has_shell_noise(rsync.code, rsync.stderr) and not drops_noise:
            drops_noise = True
            continue
        turned_away = messages.is_refused_before_login(rsync.code, rsync.stderr)
        delay_s = patience.delay_s(HELD_OFF) if turned_away else None
        if delay_s is None:
            break
        time.sleep(delay_s)
    return rsync


def _environment() -> dict[str, str]:
    """Return the environment for ssh, without variables that change what ssh or rsync prints."""
    passed_on = {
        name: value for name, value in os.environ.items() if not name.startswith(("RSYNC_", "LC_"))
    }
    return {**passed_on, "LC_ALL": "C", "SHELL": "/bin/sh", "SSH_ASKPASS_REQUIRE": "never"}
