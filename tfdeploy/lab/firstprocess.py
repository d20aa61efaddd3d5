"""Run the first process of a lab host: start its sshd, reap orphans, and exit when the host ends.

In an isolated lab, this process is PID 1 of the host's PID namespace. In a loopback lab, it is a
subreaper, so that every process of the host stays its descendant.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NoReturn

from tfdeploy.agent.host.processes import become_subreaper, die_with_parent
from tfdeploy.lab.orders import HostOrder

LISTEN_S = 20.0  # if sshd does not listen after this many seconds, its start has failed
POLL_S = 0.005  # seconds between two checks


def _start_bound_process(argv: list[str]) -> int:
    """Fork a child that runs `argv` and is killed when this process ends. Return the child's
    pid."""
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent(os.getppid())
            os.execv(argv[0], argv)
        finally:
            os._exit(127)
    return pid


def _wait_until_listening(pid_file: Path, sshd: int) -> None:
    """Wait for the pid file, which sshd writes once it listens.

    Raises OSError after LISTEN_S seconds, or as soon as sshd ends.
    """
    deadline = time.monotonic() + LISTEN_S
    while not pid_file.exists():
        if os.waitpid(sshd, os.WNOHANG)[0] or time.monotonic() > deadline:
            raise OSError("sshd did not start; console.log in the host's folder has its messages")
        time.sleep(POLL_S)


def redirect_standard_streams(console: str) -> None:
    """Read standard input from /dev/null, and write output to the file `console`."""
    for path, flags, targets in (
        ("/dev/null", os.O_RDONLY, (0,)),
        (console, os.O_WRONLY | os.O_CREAT | os.O_APPEND, (1, 2)),
    ):
        handle = os.open(path, flags, 0o600)
        for target in targets:
            os.dup2(handle, target)
        os.close(handle)


def start_sshd(host: HostOrder) -> int:
    """Start the host's sshd, and return its pid once it listens.

    Raises OSError after LISTEN_S seconds, or as soon as sshd ends.
    """
    if os.getpid() != 1:
        become_subreaper()
    pid_file = Path(host["pid_file"])
    pid_file.unlink(missing_ok=True)
    sshd = _start_bound_process(host["sshd"])
    _wait_until_listening(pid_file, sshd)
    return sshd


def reap_until_host_ends(sshd: int) -> NoReturn:
    """Reap ended processes until the host ends.

    An isolated host ends with its sshd. A loopback host ends when its last process has ended.
    """
    while True:
        try:
            ended, _ = os.wait()
        except ChildProcessError:
            os._exit(0)
        if ended == sshd and os.getpid() == 1:
            os._exit(1)
