"""Report which kernel features and programs this machine lacks, and what to type to get them.

`tfdeploy/lab/trials.py` tries each kernel feature.
"""

from __future__ import annotations

import functools
import json
import subprocess
from dataclasses import dataclass

from tfdeploy.errors import Refused
from tfdeploy.lab import folder
from tfdeploy.lab.sshd import STANDARD_PATH, find_program
from tfdeploy.machine.own_command import own_command

TRIALS_TIMEOUT_S = 60.0  # time limit for all trials together
PACKAGES = {  # {program: its Debian package}
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "rsync": "rsync",
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}
# An isolated lab needs these programs and kernel features. Programs are listed first, because some
# trials of kernel features fail only for lack of a program.
ISOLATED_LAB = (
    *("sshd", "rsync", "ip", "tc", "nsenter", "setpriv"),
    *("network namespaces", "process namespaces", "host name and ipc namespaces"),
    *("mounts", "overlay", "links", "other accounts"),
)
_DOCKER = (
    "docker run --cap-add=SYS_ADMIN --cap-add=NET_ADMIN "
    "--security-opt=seccomp=unconfined --security-opt=apparmor=unconfined IMAGE"
)


@dataclass(frozen=True)
class MissingCapability:
    """A program or kernel feature that this machine lacks."""

    name: str
    reason: str
    remedy: str  # what the user can type to get this capability


@functools.cache
def _run_kernel_trials(labs: str, _device: int) -> dict[str, str]:
    """Run all trials with scratch folders in `labs`. Return {trial: why it failed, or ""}.

    `_device` (the device of `labs`) is only a part of the cache's key, because another file system
    may give other results. Raises Refused if the trials cannot run at all.
    """
    try:
        completed = subprocess.run(
            own_command([labs], "tfdeploy.lab.trials"),
            capture_output=True,
            text=True,
            env={"PATH": STANDARD_PATH, "LC_ALL": "C.UTF-8"},
            cwd="/",
            timeout=TRIALS_TIMEOUT_S,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise Refused(
            f"the trials of kernel features did not end within {TRIALS_TIMEOUT_S:.0f} s",
            where="this machine",
        ) from error
    except subprocess.CalledProcessError as error:
        raise Refused(
            f"the trials of kernel features failed: {error.stderr.strip()[-800:]}",
            where="this machine",
        ) from error
    results: dict[str, str] = json.loads(completed.stdout)
    return results


def _kernel_trial_results() -> dict[str, str]:
    """Return {trial: why it failed, or ""}. The trials run only once per process."""
    labs = folder.labs_folder()
    return _run_kernel_trials(str(labs), labs.stat().st_dev)


def can_overlay_in(path: str) -> bool:
    """Return True if folders in `path` can be the writable layers of overlay file systems.

    `path`: the labs' folder or `folder.SPARE`.
    """
    trial = "spare overlay" if path == folder.SPARE else "overlay"
    return not _kernel_trial_results().get(trial, "not tried")


def find_missing_capabilities(*names: str, command: str) -> list[MissingCapability]:
    """Return those of `names` that this machine lacks.

    A name is a program, a trial (a test of one kernel feature), or "isolated lab", which means all
    names in ISOLATED_LAB.
    `command`: what the user typed, because a remedy may be to repeat the command with sudo.
    """
    groups = [ISOLATED_LAB if name == "isolated lab" else (name,) for name in names]
    required = dict.fromkeys(name for group in groups for name in group)
    lacks = [
        MissingCapability(name, "not installed", f"apt-get install {PACKAGES[name]}")
        for name in required
        if name in PACKAGES and not find_program(name)
    ]
    trials = [name for name in required if name not in PACKAGES]
    results = _kernel_trial_results() if trials else {}
    for name in trials:
        has_substitute = name == "overlay" and not results.get("spare overlay", "not tried")
        if results[name] and not has_substitute:
            lacks.append(MissingCapability(name, results[name], _remedy(name, results, command)))
    return lacks


def _remedy(name: str, failure_by_trial: dict[str, str], command: str) -> str:
    """Return what the user can type so that the trial `name` succeeds."""
    for program, package in PACKAGES.items():
        if failure_by_trial[name] == f"{program} is not installed":
            return f"apt-get install {package}"
    if failure_by_trial["other accounts"]:
        return f"sudo {command}"
    if name == "overlay" and not failure_by_trial["mounts"]:
        return "export XDG_STATE_HOME=FOLDER  # on ext4, xfs or tmpfs"
    return _DOCKER


def describe_missing(lacks: list[MissingCapability]) -> str:
    """Return one line such as "no mounts, links (unshare: Operation not permitted)"."""
    names: dict[str, list[str]] = {}
    for lack in lacks:
        names.setdefault(lack.reason, []).append(lack.name)
    return "; ".join(f"no {', '.join(each)} ({reason})" for reason, each in names.items())


def join_remedies(lacks: list[MissingCapability]) -> str:
    """Return one line with the commands that the user can type. All packages are in one command."""
    install = "apt-get install "
    commands = dict.fromkeys(lack.remedy for lack in lacks)
    packages = [line.removeprefix(install) for line in commands if line.startswith(install)]
    other_commands = [line for line in commands if not line.startswith(install)]
    lines = [install + " ".join(packages), *other_commands] if packages else other_commands
    return "; ".join(f"`{line}`" for line in lines)


def require_isolated(count: int) -> None:
    """Raise Refused if this machine cannot run an isolated lab. The error says what to type."""
    lacks = find_missing_capabilities(
        "isolated lab", command=f"tfdeploy lab up {count} --kind isolated"
    )
    if lacks:
        raise Refused(
            f"an isolated lab is not possible: {describe_missing(lacks)}",
            where="this machine",
            next=f"{join_remedies(lacks)}; or a loopback lab, which needs no root: "
            f"`tfdeploy lab up {count} --kind loopback`",
        )
