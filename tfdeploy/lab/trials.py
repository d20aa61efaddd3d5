"""Tries what isolated hosts are made of, each in a forked child that ends: `python -m tfdeploy.lab.trials FOLDER`.

The answer is one JSON line: {name of the trial: why it failed, or ""}. Nobody asks for capabilities or for a user id: a seccomp
filter refuses what a capability allows, and AppArmor limits user namespaces. What a child makes ends with its namespaces.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tfdeploy.agent import peer_filter
from tfdeploy.errors import Refused
from tfdeploy.lab import disk, network
from tfdeploy.lab.folder import ASIDE, SPARE
from tfdeploy.lab.sshd import program
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
    end_with_parent,
    mount,
    switch_root,
    unshare,
)

TRIAL_S = 5  # a trial that takes longer has failed
OTHER_UID = 10001
SO_ATTACH_REUSEPORT_CBPF = 51
TABLE = """add table inet trial { flags owner; }
add chain inet trial input { type filter hook input priority 0; }
add rule inet trial input meta skuid 1 drop
"""


def _private_mounts(further: int = 0) -> None:
    unshare(NEWNS | further)
    mount("none", "/", flags=RECURSIVE | PRIVATE)


def try_network(scratch: Path) -> None:
    unshare(NEWNET)


def try_names(scratch: Path) -> None:
    unshare(NEWUTS | NEWIPC)
    socket.sethostname("trial")


def try_mounts(scratch: Path) -> None:
    """All that a host mounts besides its root and /proc, and the change to that root."""
    _private_mounts(NEWNET)
    mount("tmpfs", str(scratch), "tmpfs")
    for name in ("bound", "pts", "sys"):
        (scratch / name).mkdir()
    mount("/dev", str(scratch / "bound"), flags=BIND | RECURSIVE)
    mount("devpts", str(scratch / "pts"), "devpts", options="newinstance,ptmxmode=0666,mode=620")
    mount("sysfs", str(scratch / "sys"), "sysfs", READ_ONLY)
    switch_root(str(scratch))


def try_processes(scratch: Path) -> None:
    """A process namespace with a /proc of its own."""
    _private_mounts(NEWPID)
    if reason := start(lambda at: mount("proc", str(at), "proc"), scratch / "proc").read_reason():
        raise OSError(reason)


def try_overlay(scratch: Path) -> None:
    _private_mounts()
    for name in ("layer", "work", "root"):
        (scratch / name).mkdir()
    disk.lay_over_machine(scratch, scratch / "root")


def try_links(scratch: Path) -> None:
    """A bridge, a veth and a limit of its rate."""
    for name in ("ip", "tc"):
        program(name, "iproute2")
    unshare(NEWNET)
    network.ip([*network.bridge_lines(1), "link add left type veth peer name right", f"link set left master {network.bridge(0)}"])
    network.tc(network.shape("right", "1gbit"))


def try_nftables(scratch: Path) -> None:
    """A table that one process owns, as a run's firewall has it."""
    nft = program("nft", "nftables")
    unshare(NEWNET)
    done = subprocess.run([nft, "-i"], input=TABLE, capture_output=True, text=True, timeout=TRIAL_S, check=False)
    if done.returncode or "rror: " in done.stdout + done.stderr:
        raise OSError((done.stderr or done.stdout).strip().splitlines()[0])


def try_port_filters(scratch: Path) -> None:
    """The classic BPF program by which a run chooses who reaches its ports."""
    packed = peer_filter.pack(peer_filter.program((), 1, 0))
    memory = array.array("B", packed)
    address, length = memory.buffer_info()
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", 0))
        one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, struct.pack("HP", length // 8, address))


def try_accounts(scratch: Path) -> None:
    """Files are given to another user, and this process becomes that user."""
    os.chown(scratch, OTHER_UID, OTHER_UID)
    os.setgroups([])
    os.setgid(OTHER_UID)
    os.setuid(OTHER_UID)


def try_environments(scratch: Path) -> None:
    """Read the environment of another user's process."""
    other = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=OTHER_UID, group=OTHER_UID)
    assert other.stdin is not None
    try:
        Path(f"/proc/{other.pid}/environ").read_bytes()
    finally:
        other.stdin.close()
        other.wait()


def try_next_pid(scratch: Path) -> None:
    last = Path("/proc/sys/kernel/ns_last_pid")
    last.write_text(last.read_text())


TRIALS: dict[str, Callable[[Path], None]] = {
    "network namespaces": try_network,
    "process namespaces": try_processes,
    "host name and ipc namespaces": try_names,
    "mounts": try_mounts,
    "overlay": try_overlay,
    "links": try_links,
    "nftables": try_nftables,
    "port filters": try_port_filters,
    "other accounts": try_accounts,
    "environments of other accounts": try_environments,
    "choice of a pid": try_next_pid,
}


@dataclass(frozen=True)
class Attempt:
    """One trial that runs in a forked child."""

    pid: int
    answer_fd: int

    def read_reason(self) -> str:
        """Why it failed; "": it did not."""
        with os.fdopen(self.answer_fd, errors="replace") as answer:
            reason = answer.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if code == -signal.SIGALRM:
            return f"no answer within {TRIAL_S} s"
        return "" if code == 0 else reason or f"exit code {code}"


def start(trial: Callable[[Path], None], scratch: Path) -> Attempt:
    answer_fd, write_fd = os.pipe()
    scratch.mkdir()
    pid = os.fork()
    if pid == 0:
        _report_and_exit(trial, scratch, write_fd)
    os.close(write_fd)
    return Attempt(pid, answer_fd)


def _report_and_exit(trial: Callable[[Path], None], scratch: Path, write_fd: int) -> NoReturn:
    """Run one trial in this child, and write its reason where it fails."""
    reason, code = "", 1
    try:
        end_with_parent()
        signal.alarm(TRIAL_S)
        trial(scratch)
        code = 0
    except Refused as error:
        reason = error.what
    except OSError as error:
        reason = (error.strerror or str(error)).replace(str(scratch), "a folder")  # each time the same text
    finally:
        os.write(write_fd, reason.encode(errors="replace"))
        os._exit(code)


def run_all(folder: str) -> dict[str, str]:
    """Every trial by its name. `folder`: where a lab's layers would lie. Leaves nothing."""
    with ExitStack() as stack:
        bases = [Path(stack.enter_context(_scratch(each))) for each in (folder, SPARE) if os.path.isdir(each)]
        started = {name: start(trial, bases[0] / name.replace(" ", "-")) for name, trial in TRIALS.items()}
        if len(bases) > 1:
            started["spare overlay"] = start(try_overlay, bases[1] / "overlay")
        return {name: attempt.read_reason() for name, attempt in started.items()}


def _scratch(folder: str) -> tempfile.TemporaryDirectory[str]:
    """With the name of a lab that is being removed: `lab down` removes what a killed process left."""
    return tempfile.TemporaryDirectory(prefix=f"{ASIDE}{os.getpid()}-", dir=folder)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_all(sys.argv[1])))
