"""The first process of a host: starts its sshd, adopts and reaps orphans, and ends when it has no
children left.

Isolated, it is PID 1 of the host's PID namespace; on loopback a subreaper, so that every process of
the host stays below it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NoReturn

from tfdeploy.agent.host.processes import become_subreaper, die_with_parent
from tfdeploy.lab.orders import HostOrder

LISTEN_S = 20.0
POLL_S = 0.005


def _start(argv: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent(os.getppid())
            os.execv(argv[0], argv)
        finally:
            os._exit(127)
    return pid


def _wait_until_listening(pid_file: Path, sshd: int) -> None:
    """sshd writes its pid file once it listens."""
    deadline = time.monotonic() + LISTEN_S
    while not pid_file.exists():
        if os.waitpid(sshd, os.WNOHANG)[0] or time.monotonic() > deadline:
            raise OSError("sshd did not start; its reason is in the console")
        time.sleep(POLL_S)


def take_over_streams(console: str) -> None:
    """Standard input from /dev/null, output to the file `console`."""
    for path, flags, targets in (
        ("/dev/null", os.O_RDONLY, (0,)),
        (console, os.O_WRONLY | os.O_CREAT | os.O_APPEND, (1, 2)),
    ):
        handle = os.open(path, flags, 0o600)
        for target in targets:
            os.dup2(handle, target)
        os.close(handle)


def start_sshd(host: HostOrder) -> int:
    """Starts the host's sshd and returns its pid once it listens. Raises OSError after LISTEN_S
    seconds or when it ends."""
    if os.getpid() != 1:
        become_subreaper()
    pid_file = Path(host["pid_file"])
    pid_file.unlink(missing_ok=True)
    sshd = _start(host["sshd"])
    _wait_until_listening(pid_file, sshd)
    return sshd


def reap_until_the_end(sshd: int) -> NoReturn:
    """Isolated, the host ends with its sshd; on loopback when its last process has ended."""
    while True:
        try:
            ended, _ = os.wait()
        except ChildProcessError:
            os._exit(0)
        if ended == sshd and os.getpid() == 1:
            os._exit(1)
