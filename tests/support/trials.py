"""Try whether this machine has the kernel features that tests need. Features that a lab needs are
tried in `tfdeploy/lab/trials.py`.

`python -m support.trials FOLDER` prints the results in the format of that module.
"""

from __future__ import annotations

import array
import functools
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tfdeploy.agent import peer_filter
from tfdeploy.lab.capabilities import MissingCapability
from tfdeploy.lab.sshd import require_program
from tfdeploy.lab.syscalls import NEWNET, unshare
from tfdeploy.lab.trials import OTHER_UID, TRIAL_TIMEOUT_S, Trial, run_all

SO_ATTACH_REUSEPORT_CBPF = 51
NFT_COMMANDS = """add table inet trial { flags owner; }
add chain inet trial input { type filter hook input priority 0; }
add rule inet trial input meta skuid 1 drop
"""


def try_nftables(scratch: Path) -> None:
    """Create a table that one process owns, as the firewall of a run does."""
    nft = require_program("nft", "nftables")
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
    """Attach a BPF filter to a socket, as tfdeploy does to decide who can reach a run's ports."""
    instructions = array.array("B", peer_filter.pack(peer_filter.build_filter((), 1, 0)))
    address, length = instructions.buffer_info()
    program_header = struct.pack("HP", length // 8, address)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program_header)


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

    Under no_new_privs, which bubblewrap sets, and on a nosuid mount, the kernel ignores the setuid
    bit. It then ignores file capabilities too.
    """
    copy = Path(shutil.copy(require_program("id", "coreutils"), scratch))
    copy.chmod(0o4755)
    # The program is run through its descriptor, because the other user may not enter the folder.
    with copy.open("rb") as file:
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
    """Write to the file ns_last_pid in /proc. With this file, a process chooses the pid of the next
    process.
    """
    last = Path("/proc/sys/kernel/ns_last_pid")
    last.write_text(last.read_text())


def try_zensical(scratch: Path) -> None:
    """Find zensical, the program that generates the website of the documentation."""
    if find_spec("zensical") is None:
        raise OSError("zensical is not installed")


# {name: (trial, the option of `docker run` with which the trial succeeds)}
TRIALS: dict[str, tuple[Trial, str]] = {
    "nftables": (try_nftables, "--cap-add=NET_ADMIN"),
    "port filters": (try_port_filters, "--cap-add=NET_ADMIN"),
    "environments of other accounts": (try_environments, "--cap-add=SYS_PTRACE"),
    "choice of a pid": (try_next_pid, "--privileged"),
    "setuid programs": (try_setuid, "--security-opt=no-new-privileges=false"),
    "zensical": (try_zensical, ""),
}
# {why a trial failed: the command that repairs this}
_INSTALL = {
    "nft is not installed": "apt-get install nftables",
    "zensical is not installed": "make setup",
}


@functools.cache
def results() -> dict[str, str]:
    """Return {trial: why it failed, or ""}."""
    # The trials fork, and this process may have threads, so they run in a separate process.
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "support.trials", folder]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=True)
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


def find_lack(name: str) -> MissingCapability | None:
    """Return what this machine lacks for the trial `name`, or None."""
    reason = results()[name]
    if not reason:
        return None
    remedy = _INSTALL.get(reason, f"docker run {TRIALS[name][1]} IMAGE")
    return MissingCapability(name, reason, remedy)


if __name__ == "__main__":
    trials = {name: trial for name, (trial, _) in TRIALS.items()}
    sys.stdout.write(json.dumps(run_all(trials, sys.argv[1])))
