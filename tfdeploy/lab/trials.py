"""Try the kernel features that isolated hosts need: `python -m tfdeploy.lab.trials FOLDER`.

Each trial performs the operation in a forked child. Capabilities and the user id are not
checked: a seccomp filter may refuse what a capability allows, and AppArmor may restrict user
namespaces. Mounts, links and tables that a child makes vanish with the child's namespaces.

Standard output is one JSON object: {name of the trial: why it failed, "" for a success}.
"""

from __future__ import annotations

import array
import json
import os
import shutil
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

TRIAL_TIMEOUT_S = 5
OTHER_UID = 10001
SO_ATTACH_REUSEPORT_CBPF = 51
NFT_COMMANDS = """add table inet trial { flags owner; }
add chain inet trial input { type filter hook input priority 0; }
add rule inet trial input meta skuid 1 drop
"""


def _unshare_mounts(other_namespaces: int = 0) -> None:
    unshare(NEWNS | other_namespaces)
    mount("none", "/", flags=RECURSIVE | PRIVATE)


def try_network(scratch: Path) -> None:
    unshare(NEWNET)


def try_names(scratch: Path) -> None:
    unshare(NEWUTS | NEWIPC)
    socket.sethostname("trial")


def try_mounts(scratch: Path) -> None:
    """Mount all that a host mounts besides its root and /proc, and switch to a new root."""
    _unshare_mounts(NEWNET)
    mount("tmpfs", str(scratch), "tmpfs")
    for name in ("bound", "pts", "sys"):
        (scratch / name).mkdir()
    mount("/dev", str(scratch / "bound"), flags=BIND | RECURSIVE)
    mount("devpts", str(scratch / "pts"), "devpts", options="newinstance,ptmxmode=0666,mode=620")
    mount("sysfs", str(scratch / "sys"), "sysfs", READ_ONLY)
    switch_root(str(scratch))


def try_processes(scratch: Path) -> None:
    """Make a process namespace with a /proc of its own."""
    _unshare_mounts(NEWPID)
    in_namespace = start(lambda folder: mount("proc", str(folder), "proc"), scratch / "proc")
    if reason := in_namespace.read_reason():
        raise OSError(reason)


def try_overlay(scratch: Path) -> None:
    _unshare_mounts()
    for name in ("layer", "work", "root"):
        (scratch / name).mkdir()
    disk.lay_over_machine(scratch, scratch / "root")


def try_links(scratch: Path) -> None:
    """Make a bridge and a veth pair, and limit the rate of one end."""
    for name in ("ip", "tc"):
        program(name, "iproute2")
    unshare(NEWNET)
    add_pair = "link add left type veth peer name right"
    network.ip([*network.bridge_lines(1), add_pair, f"link set left master {network.bridge(0)}"])
    network.tc(network.shape("right", "1gbit"))


def try_nftables(scratch: Path) -> None:
    """Make a table that one process owns, as the firewall of a run does."""
    nft = program("nft", "nftables")
    unshare(NEWNET)
    done = subprocess.run(
        [nft, "-i"],
        input=NFT_COMMANDS,
        capture_output=True,
        text=True,
        timeout=TRIAL_TIMEOUT_S,
        check=False,
    )
    if done.returncode or "rror: " in done.stdout + done.stderr:
        raise OSError((done.stderr or done.stdout).strip().splitlines()[0])


def try_port_filters(scratch: Path) -> None:
    """Attach the classic BPF program that decides which peers reach a run's ports."""
    instructions = array.array("B", peer_filter.pack(peer_filter.program((), 1, 0)))
    address, length = instructions.buffer_info()
    program_header = struct.pack("HP", length // 8, address)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program_header)


def try_accounts(scratch: Path) -> None:
    """Give a folder to another user, and become that user."""
    os.chown(scratch, OTHER_UID, OTHER_UID)
    os.setgroups([])
    os.setgid(OTHER_UID)
    os.setuid(OTHER_UID)


def try_environments(scratch: Path) -> None:
    """Read the environment of another user's process."""
    pipe = subprocess.PIPE
    other = subprocess.Popen(["cat"], stdin=pipe, stdout=pipe, user=OTHER_UID, group=OTHER_UID)
    assert other.stdin is not None
    try:
        Path(f"/proc/{other.pid}/environ").read_bytes()
    finally:
        other.stdin.close()
        other.wait()


def try_setuid(scratch: Path) -> None:
    """Run a setuid program as another user.

    The bit is ignored under no_new_privs, which bubblewrap sets, and on a nosuid mount. File
    capabilities are then ignored too.
    """
    copy = Path(shutil.copy(program("id", "coreutils"), scratch))
    copy.chmod(0o4755)
    with copy.open("rb") as file:  # by its descriptor: the other user may not enter the folder
        done = subprocess.run(
            ["id", "-u"],
            executable=f"/proc/self/fd/{file.fileno()}",
            pass_fds=[file.fileno()],
            user=OTHER_UID,
            group=OTHER_UID,
            capture_output=True,
            timeout=TRIAL_TIMEOUT_S,
            check=True,
        )
    if int(done.stdout) != os.geteuid():
        raise OSError("setuid bits are ignored")


def try_next_pid(scratch: Path) -> None:
    """Write the file by which a process chooses the next pid."""
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
    "setuid programs": try_setuid,
}


@dataclass(frozen=True)
class Attempt:
    """One trial that runs in a forked child."""

    pid: int
    answer_fd: int

    def read_reason(self) -> str:
        """Return why the trial failed, or "" if it succeeded. Waits for the child."""
        with os.fdopen(self.answer_fd, errors="replace") as answer:
            reason = answer.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if code == -signal.SIGALRM:
            return f"no answer within {TRIAL_TIMEOUT_S} s"
        return "" if code == 0 else reason or f"exit code {code}"


def start(trial: Callable[[Path], None], scratch: Path) -> Attempt:
    """Fork a child that runs `trial` in the new folder `scratch`."""
    answer_fd, write_fd = os.pipe()
    scratch.mkdir()
    pid = os.fork()
    if pid == 0:
        _report_and_exit(trial, scratch, write_fd)
    os.close(write_fd)
    return Attempt(pid, answer_fd)


def _report_and_exit(trial: Callable[[Path], None], scratch: Path, write_fd: int) -> NoReturn:
    """Run one trial in this child, and write the reason if it fails."""
    reason, code = "", 1
    try:
        end_with_parent()
        signal.alarm(TRIAL_TIMEOUT_S)
        trial(scratch)
        code = 0
    except Refused as error:
        reason = error.what
    except OSError as error:
        # Without the random name of `scratch`, equal failures have equal reasons.
        reason = (error.strerror or str(error)).replace(str(scratch), "a folder")
    finally:
        os.write(write_fd, reason.encode(errors="replace"))
        os._exit(code)


def run_all(folder: str) -> dict[str, str]:
    """Run all trials at once and return {name: why it failed, or ""}.

    `folder` is where the labs' overlay layers are stored. All scratch files are removed.
    """
    with ExitStack() as stack:
        parents = [parent for parent in (folder, SPARE) if os.path.isdir(parent)]
        scratch = [Path(stack.enter_context(_make_scratch(parent))) for parent in parents]
        started = {}
        for name, trial in TRIALS.items():
            started[name] = start(trial, scratch[0] / name.replace(" ", "-"))
        if len(scratch) > 1:
            started["spare overlay"] = start(try_overlay, scratch[1] / "overlay")
        return {name: attempt.read_reason() for name, attempt in started.items()}


def _make_scratch(folder: str) -> tempfile.TemporaryDirectory[str]:
    """Make a folder that `lab down` removes if this process is killed, because of its prefix."""
    return tempfile.TemporaryDirectory(prefix=f"{ASIDE}{os.getpid()}-", dir=folder)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_all(sys.argv[1])))
