"""What this machine can do, by trying it (`trials`), and what to type where it cannot."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import tfdeploy
from tfdeploy.errors import Refused
from tfdeploy.lab import folder
from tfdeploy.lab.sshd import STANDARD_PATH

ASK_S = 60.0
PACKAGES = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "rsync": "rsync",
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "nft": "nftables",
}
# What an isolated lab needs: programs first, because their absence is the reason of some trials.
ISOLATED_LAB = (
    *("sshd", "rsync", "ip", "tc", "nsenter", "setpriv"),
    *("network namespaces", "process namespaces", "host name and ipc namespaces", "mounts", "overlay", "links", "other accounts"),
)
_LAB_OPTIONS = "--cap-add=SYS_ADMIN --cap-add=NET_ADMIN --security-opt=seccomp=unconfined --security-opt=apparmor=unconfined"
_OPTIONS = {"environments of other accounts": "--cap-add=SYS_PTRACE", "choice of a pid": "--privileged"}


@dataclass(frozen=True)
class Lack:
    """One thing that this machine cannot do."""

    name: str
    reason: str
    remedy: str  # what to type


@functools.cache
def _ask(labs: str, _device: int) -> dict[str, str]:
    """The answers of all trials, for labs on that device. Raises Refused where they cannot run at all."""
    environment = {"PATH": STANDARD_PATH, "PYTHONPATH": str(Path(tfdeploy.__file__).parents[1]), "LC_ALL": "C.UTF-8"}
    words = [sys.executable, "-m", "tfdeploy.lab.trials", labs]
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd="/", timeout=ASK_S, check=True)
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", "") or str(error)
        raise Refused(f"what this machine can do was not found out: {said.strip()[-800:]}", where="this machine") from error
    answers: dict[str, str] = json.loads(done.stdout)
    return answers


def _answers() -> dict[str, str]:
    labs = folder.labs_folder()
    return _ask(str(labs), labs.stat().st_dev)


def can_stack_in(path: str) -> bool:
    """True if a host's layer can lie below `path`: the labs' folder or folder.SPARE."""
    return not _answers().get("spare overlay" if path == folder.SPARE else "overlay", "not tried")


def is_installed(program: str) -> bool:
    return bool(shutil.which(program) or shutil.which(program, path=STANDARD_PATH))


def find_lacks(*names: str, command: str) -> list[Lack]:
    """Which of `names` (trials, programs, "isolated lab") this machine lacks. `command`: what to give again with sudo."""
    wanted = dict.fromkeys(each for name in names for each in (ISOLATED_LAB if name == "isolated lab" else (name,)))
    programs = [name for name in wanted if name in PACKAGES]
    absent = [Lack(name, "not installed", f"apt-get install {PACKAGES[name]}") for name in programs if not is_installed(name)]
    tried = [name for name in wanted if name not in PACKAGES]
    answers = _answers() if tried else {}
    refused = [Lack(name, answers[name], _remedy(name, answers, command)) for name in tried if answers[name]]
    return absent + [lack for lack in refused if lack.name != "overlay" or answers.get("spare overlay", "not tried")]


def _remedy(name: str, answers: dict[str, str], command: str) -> str:
    for program, package in PACKAGES.items():
        if answers[name] == f"{program} is not installed":
            return f"apt-get install {package}"
    if answers["other accounts"]:
        return f"sudo {command}"
    if name == "overlay" and not answers["mounts"]:
        return "set XDG_STATE_HOME to a folder on ext4, xfs or tmpfs"
    return f"docker run {_OPTIONS.get(name, _LAB_OPTIONS)} IMAGE"


def describe(lacks: list[Lack]) -> str:
    """One sentence without a full stop, for example "no mounts, links (unshare: Operation not permitted)"."""
    names: dict[str, list[str]] = {}
    for lack in lacks:
        names.setdefault(lack.reason, []).append(lack.name)
    return "; ".join(f"no {', '.join(each)} ({reason})" for reason, each in names.items())


def remedies(lacks: list[Lack]) -> str:
    """What to type, as one line."""
    install = "apt-get install "
    lines = dict.fromkeys(lack.remedy for lack in lacks)
    packages = [line.removeprefix(install) for line in lines if line.startswith(install)]
    return "; ".join([*([install + " ".join(packages)] if packages else []), *(x for x in lines if not x.startswith(install))])


def require_isolated(count: int) -> None:
    """Raises Refused, with what to type, where this machine can hold no isolated lab."""
    lacks = find_lacks("isolated lab", command=f"tfdeploy lab up {count} --kind isolated")
    if lacks:
        instead = f"{remedies(lacks)}; or without all that: tfdeploy lab up {count} --kind loopback"
        raise Refused(f"an isolated lab cannot be had here: {describe(lacks)}", where="this machine", next=instead)
