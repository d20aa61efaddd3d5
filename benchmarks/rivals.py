"""Return the command lines of other tools, as a user would type them.

They contain no settings except those that are needed to reach and to trust the lab's hosts.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from place import USER, BenchLab

TUNED = ("-o", "KexAlgorithms=curve25519-sha256", "-o", "Ciphers=aes128-gcm@openssh.com")
CLUSH_MISSING = "clush is not installed (Debian's package clustershell)"


def clush(bench: BenchLab, command: str, *, hosts: list[str], fanout: int = 64) -> list[str] | None:
    """Return the command of clush, or None if it is not installed."""
    if shutil.which("clush") is None:
        return None
    return [
        "clush",
        "-q",
        "-f",
        str(fanout),
        "-l",
        USER,
        "-o",
        shlex.join(_settings(bench)),
        "-w",
        ",".join(hosts),
        command,
    ]


def ssh(bench: BenchLab, where: str, script: str) -> list[str]:
    return ["ssh", *_settings(bench), where, script]


def rsync(
    bench: BenchLab, source: Path, destination: str, *, parallel: int = 32, tuned: bool = False
) -> list[str]:
    """Return a command that starts one rsync, by xargs, for each address on its standard input."""
    shell = shlex.join(["ssh", *_settings(bench), *(TUNED if tuned else ())])
    to = f"{USER}@{{}}:{destination}/"
    return [
        "xargs",
        f"-P{parallel}",
        "-I{}",
        "rsync",
        "-a",
        "--delete",
        "-e",
        shell,
        f"{source}/",
        to,
    ]


def rsync_to(bench: BenchLab, source: Path, destination: str) -> list[str]:
    """Return a command that sends a folder to the first host."""
    shell = shlex.join(["ssh", *_settings(bench)])
    to = f"{USER}@{bench.addresses[0]}:{destination}/"
    return ["rsync", "-a", "--delete", "-e", shell, f"{source}/", to]


def rsync_from(bench: BenchLab, source: str, destination: Path) -> list[str]:
    """Return a command that copies a folder of the first host to this machine."""
    shell = shlex.join(["ssh", *_settings(bench)])
    return ["rsync", "-a", "-e", shell, f"{USER}@{bench.addresses[0]}:{source}/", f"{destination}/"]


def _settings(bench: BenchLab) -> list[str]:
    known, identity = bench.lab.known_hosts, bench.lab.root / "id_ed25519"
    return ["-o", f"UserKnownHostsFile={known}", "-o", f"IdentityFile={identity}"]
