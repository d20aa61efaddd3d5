"""Start unrelated processes that get the same pids as processes of a run that have ended."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from support.lab.host_commands import host_command
from tfdeploy.lab import Lab
from tfdeploy.lab.isolated import UID

TAKE = r"""
import os, sys
user = int(sys.argv[1])
for wanted in map(int, sys.argv[2:]):
    for attempt in range(2000):
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(wanted - 1))
        pid = os.fork()
        if pid == 0:
            if os.getpid() != wanted:
                os._exit(0)
            os.setgid(user)
            os.setuid(user)
            os.execvp("sleep", ["sleep", "1000"])
        if pid == wanted:
            break
        os.waitpid(pid, 0)
    else:
        sys.exit("pid %d is not to be had" % wanted)
print("up", flush=True)
sys.stdin.read()
alive = [pid for pid in map(int, sys.argv[2:]) if os.waitpid(pid, os.WNOHANG) == (0, 0)]
print(*alive, flush=True)
for pid in alive:
    os.kill(pid, 9)
"""


class Strangers:
    def __init__(self, process: subprocess.Popen[str], pids: Sequence[int]) -> None:
        self._process, self._pids = process, list(pids)
        self._alive: list[int] | None = None

    def untouched(self) -> bool:
        """Return True if all these processes are still alive, and then end them."""
        if self._alive is None:
            output, _ = self._process.communicate(timeout=30)
            self._alive = [int(pid) for pid in output.split()]
        return self._alive == self._pids


@contextmanager
def strangers(lab: Lab, host: str, pids: Sequence[int]) -> Iterator[Strangers]:
    """Start processes with these pids on an isolated host, as the host's user. The pids must be
    free.
    """
    command = host_command(lab, host, ["python3", "-c", TAKE, str(UID), *map(str, pids)], root=True)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        strangers_running = Strangers(process, pids)
        try:
            yield strangers_running
        finally:
            strangers_running.untouched()
