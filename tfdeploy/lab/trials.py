"""Try the kernel features that isolated hosts need: `python -m tfdeploy.lab.trials FOLDER`.

Each trial uses one feature in a forked child. It is not enough to check capabilities and the user
id: a seccomp filter may refuse what a capability allows, and AppArmor may restrict user namespaces.
The mounts and links of a child disappear together with the child's namespaces.

Standard output is one JSON object: {name of the trial: why it failed, or "" if it succeeded}.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tfdeploy.agent.host.processes import die_with_parent
from tfdeploy.errors import Refused
from tfdeploy.lab import disk, network
from tfdeploy.lab.folder import ASIDE, SPARE
from tfdeploy.lab.sshd import require_program
from tfdeploy.lab.syscalls import (
    BIND,
    NEWIPC,
    NEWNET,
    NEWNS,
    NEWPID,
    NEWUTS,
    PRIVATE,
    READ_ONLY,
    RECURSIVE,
    mount,
    switch_root,
    unshare,
)

Trial = Callable[[Path], None]  # the parameter is the trial's scratch folder

TRIAL_TIMEOUT_S = 5
OTHER_UID = 10001  # any user id except that of this process


def _unshare_mounts(other_namespaces: int = 0) -> None:
    unshare(NEWNS | other_namespaces)
    mount("none", "/", flags=RECURSIVE | PRIVATE)


def try_network_namespace(scratch: Path) -> None:
    unshare(NEWNET)


def try_hostname(scratch: Path) -> None:
    unshare(NEWUTS | NEWIPC)
    socket.sethostname("trial")


def try_mounts(scratch: Path) -> None:
    """Make all mounts of a host except its root and /proc, and switch to a new root."""
    _unshare_mounts(NEWNET)
    mount("tmpfs", scratch, "tmpfs")
    for name in ("bound", "pts", "sys"):
        (scratch / name).mkdir()
    mount("/dev", scratch / "bound", flags=BIND | RECURSIVE)
    mount("devpts", scratch / "pts", "devpts", options="newinstance,ptmxmode=0666,mode=620")
    mount("sysfs", scratch / "sys", "sysfs", READ_ONLY)
    switch_root(scratch)


def try_processes(scratch: Path) -> None:
    """Make a PID namespace that has a /proc of its own."""
    _unshare_mounts(NEWPID)
    in_namespace = start(lambda folder: mount("proc", folder, "proc"), scratch / "proc")
    if reason := in_namespace.read_reason():
        raise OSError(reason)


def try_overlay(scratch: Path) -> None:
    _unshare_mounts()
    for name in ("layer", "work", "root"):
        (scratch / name).mkdir()
    disk.mount_overlay(scratch, scratch / "root")


def try_network_links(scratch: Path) -> None:
    """Make a bridge and a veth pair, and limit the rate of one end."""
    for name in ("ip", "tc"):
        require_program(name, "iproute2")
    unshare(NEWNET)
    add_pair = "link add left type veth peer name right"
    network.run_batch(
        "ip", [*network.bridge_lines(1), add_pair, f"link set left master {network.bridge_name(0)}"]
    )
    network.run_batch("tc", network.rate_limit_lines("right", "1gbit"))


def try_accounts(scratch: Path) -> None:
    """Give a folder to another user, and become that user."""
    os.chown(scratch, OTHER_UID, OTHER_UID)
    os.setgroups([])
    os.setgid(OTHER_UID)
    os.setuid(OTHER_UID)


TRIALS: dict[str, Trial] = {
    "network namespaces": try_network_namespace,
    "process namespaces": try_processes,
    "host name and ipc namespaces": try_hostname,
    "mounts": try_mounts,
    "overlay": try_overlay,
    "links": try_network_links,
    "other accounts": try_accounts,
}


@dataclass(frozen=True)
class Attempt:
    """A forked child that runs one trial."""

    pid: int
    answer_fd: int

    def read_reason(self) -> str:
        """Wait for the child. Return why the trial failed, or "" if it succeeded."""
        with os.fdopen(self.answer_fd, errors="replace") as answer:
            reason = answer.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if code == -signal.SIGALRM:
            return f"no answer within {TRIAL_TIMEOUT_S} s"
        return "" if code == 0 else reason or f"exit code {code}"


def start(trial: Trial, scratch: Path) -> Attempt:
    """Fork a child that runs `trial`. `scratch`: where the trial's folder is created."""
    answer_fd, write_fd = os.pipe()
    scratch.mkdir()
    pid = os.fork()
    if pid == 0:
        _report_and_exit(trial, scratch, write_fd)
    os.close(write_fd)
    return Attempt(pid, answer_fd)


def _report_and_exit(trial: Trial, scratch: Path, write_fd: int) -> NoReturn:
    """Run one trial in this child process. If the trial fails, write the reason to `write_fd`."""
    reason, code = "", 1
    try:
        die_with_parent(os.getppid())
        signal.alarm(TRIAL_TIMEOUT_S)
        trial(scratch)
        code = 0
    except Refused as error:
        reason = error.what
    except OSError as error:
        # Each trial has its own `scratch` folder. The path of this folder is removed from the
        # reason, so that equal failures have equal texts.
        reason = (error.strerror or str(error)).replace(str(scratch), "a folder")
    finally:
        os.write(write_fd, reason.encode(errors="replace"))
        os._exit(code)


def run_all(trial_by_name: dict[str, Trial], folder: str) -> dict[str, str]:
    """Run all trials at the same time, and return {name: why it failed, or ""}.

    `folder`: the folder in which the scratch folders are created.
    """
    # `lab down` deletes folders with this prefix, so it also deletes the folder that this process
    # leaves if it is killed.
    prefix = f"{ASIDE}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder) as scratch:
        started = [
            start(trial, Path(scratch, str(n))) for n, trial in enumerate(trial_by_name.values())
        ]
        reasons = [attempt.read_reason() for attempt in started]
        return dict(zip(trial_by_name, reasons, strict=True))


if __name__ == "__main__":
    results = run_all(TRIALS, sys.argv[1])
    if os.path.isdir(SPARE):
        results |= run_all({"spare overlay": try_overlay}, SPARE)
    sys.stdout.write(json.dumps(results))
