"""The one caller of rsync: a tree, or some names of it, to a folder on one host, over OpenSSH.

It uses the same target as the sessions. It decides nothing about what is sent, and refuses to delete from an
empty source.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tfdeploy.errors import Interrupted, Refused
from tfdeploy.transport import quiet, rsyncwords
from tfdeploy.transport.sshargv import rsync_shell, ssh_argv
from tfdeploy.transport.target import Target

TURNED_AWAY_TRIES = 6
STARTS_PER_DOOR = 6  # ssh connections being opened through one jump host at once
STDERR_BYTES = 32 << 10
END_S = 3.0

_lock = threading.Lock()
_running: dict[subprocess.Popen[bytes], Target] = {}
_ended: set[subprocess.Popen[bytes]] = set()  # by us
_starts: dict[Target, threading.BoundedSemaphore] = {}

Progress = Callable[[int, int | None], None]


def push(
    target: Target,
    source_root: str,
    names: Iterable[bytes] | None,
    destination: str,
    *,
    delete: bool,
    on_progress: Progress | None = None,
) -> int:
    """Sends the tree under `source_root` (`names` None), or these names of it, to the folder `destination`; returns
    the bytes that went over the wire.

    `names`: relative, files and links; they are sent whatever their times say. A tree is compared by size and time.
    Files arrive 0600 or 0700, folders 0700, with their times; an interrupted file is kept and goes on next time.
    `on_progress(bytes done, total or None)`. A file that vanishes meanwhile is no error: the caller checks the result.
    Raises Refused (no rsync, empty source with `delete`), HostFailed (disk full, ...), HostUnreachable, Interrupted.
    """
    _check_local()
    listed = None if names is None else list(names)
    argv = push_argv(source_root, destination, names=listed is not None, delete=delete)
    _check_source(source_root, delete)
    noise = False
    for attempt in range(TURNED_AWAY_TRIES):
        shell = _shell(target, noise)
        done = _Transfer(target, [argv[0], *shell, *argv[1:]], listed, on_progress).run()
        if done.code in (0, rsyncwords.VANISHED):
            return done.sent
        if done.interrupted:
            raise Interrupted("the transfer was interrupted", where=target.name or target.where)
        if rsyncwords.noisy(done.code, done.said) and not noise:
            noise = True
        elif not rsyncwords.turned_away(done.code, done.said):
            break
        time.sleep(random.uniform(0.1, 0.3) * 2 ** min(attempt, 3))
    raise rsyncwords.explain(done.code, done.said, target, source_root)


def _check_source(root: str, delete: bool) -> None:
    try:
        with os.scandir(root) as entries:
            empty = next(entries, None) is None
    except OSError as error:
        raise Refused(f"the source cannot be read: {error.strerror}", where=root) from error
    if empty and delete:
        raise Refused("the source is empty: nothing is deleted for it", where=root)


def push_argv(source_root: str, destination: str, *, names: bool, delete: bool) -> list[str]:
    """The words, without the remote shell. Raises Refused for paths that are not absolute."""
    for path in (source_root, destination):
        if not path.startswith("/") or "\0" in path or "\n" in path:
            raise Refused(f"{path!r} is not an absolute path that can be sent")
    words = ["rsync", "-lpt", "-s", "--chmod=Du=rwx,Dgo=,Fu+rw,Fgo=", "--partial-dir=.tfdeploy-partial"]
    words += ["--info=progress2,stats1", "--no-human-readable", "--outbuf=L"]
    words += ["--ignore-times", "--files-from=-", "--from0"] if names else ["-r"]
    words += ["--delete-delay"] if delete else []
    return [*words, "--", source_root.rstrip("/") + "/", f"target:{destination.rstrip('/')}/"]


def end(targets: Collection[Target]) -> None:
    """Ends the transfers to these targets, their processes with them."""
    with _lock:
        mine = [process for process, target in _running.items() if target in targets]
        _ended.update(mine)
    for process in mine:
        _signal(process, signal.SIGTERM)


@dataclass
class _Done:
    code: int = 0
    sent: int = 0
    said: bytes = b""
    interrupted: bool = False


@dataclass
class _Transfer:
    """One rsync process: names in, progress out, its complaints kept, and never left behind."""

    target: Target
    argv: list[str]
    names: list[bytes] | None
    on_progress: Progress | None
    done: _Done = field(default_factory=_Done)

    def run(self) -> _Done:
        with contextlib.ExitStack() as start:
            if self.target.jump is not None:
                with _lock:
                    gate = _starts.setdefault(self.target.jump, threading.BoundedSemaphore(STARTS_PER_DOOR))
                start.enter_context(gate)
            process = subprocess.Popen(
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                start_new_session=True,  # neither the terminal's Ctrl-C nor its password prompt
            )
            with _lock:
                _running[process] = self.target
            try:
                self._mind(process, start)
            finally:
                self._bury(process)
        return self.done

    def _mind(self, process: subprocess.Popen[bytes], start: contextlib.ExitStack) -> None:
        beside = [threading.Thread(target=work, args=(process,), daemon=True) for work in (self._feed, self._listen)]
        for thread in beside:
            thread.start()
        assert process.stdout is not None
        rest = b""
        while block := os.read(process.stdout.fileno(), 1 << 16):
            start.close()
            *lines, rest = re.split(rb"[\r\n]", rest + block)
            rest = rest[-4096:]
            self._read(lines)
        self._read([rest])
        self.done.code = process.wait()
        for thread in beside:
            thread.join(END_S)

    def _read(self, lines: list[bytes]) -> None:
        newest = None
        for line in lines:
            newest = rsyncwords.progress(line) or newest
            self.done.sent = rsyncwords.sent_bytes(line) or self.done.sent
        if newest is not None and self.on_progress is not None:
            self.on_progress(newest[0], None)

    def _feed(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError), process.stdin as pipe:
            for name in self.names or ():
                pipe.write(b"./" + name + b"\0")  # a leading # or ; would be a comment

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        while block := os.read(process.stderr.fileno(), 1 << 14):
            if len(self.done.said) < STDERR_BYTES:
                self.done.said += block

    def _bury(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            _signal(process, signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        with _lock:
            _running.pop(process, None)
            self.done.interrupted = process in _ended
            _ended.discard(process)


def _shell(target: Target, noise: bool) -> list[str]:
    words = ssh_argv(target)
    if not noise:
        return ["-e", rsync_shell(words)]
    words = (sys.executable, "-S", "-E", str(Path(quiet.__file__).resolve()), *words)
    return ["-e", rsync_shell(words), f"--rsync-path=echo {quiet.MARK.decode().strip()}; exec rsync"]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RSYNC_", "LC_"))}
    return {**kept, "LC_ALL": "C", "SHELL": "/bin/sh", "SSH_ASKPASS_REQUIRE": "never"}


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


@lru_cache(maxsize=1)
def _check_local() -> None:
    """Raises Refused where this machine's rsync cannot do it. A refusal is not remembered."""
    for program, package in (("rsync", "rsync"), ("ssh", "openssh-client")):
        if shutil.which(program) is None:
            raise Refused(f"{program} is missing on this machine", next=f"install the package {package}")
    said = subprocess.run(["rsync", "--version"], capture_output=True, text=True, check=False, errors="replace").stdout
    found = re.search(r"rsync\s+version\s+v?(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < (3, 1) or "openrsync" in said:
        first = said.splitlines()[0] if said else "it says nothing"
        raise Refused(f"rsync 3.1 or newer is needed on this machine: {first[:100]}", next="install the package rsync")
