"""Decide whether a local rsync can be confined to one folder, and build the command for that.

The program `confined.py` then confines rsync, in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache

from tfdeploy.transport.rsync import ask_for_shell, confined

TRIAL_S = 20.0  # seconds until one trial counts as failed


def remote_shell_command(fd: int) -> tuple[str, ...]:
    """Return the command that rsync runs as its remote shell (`-e`).

    `fd`: the socket on which that command sends its request to tfdeploy.
    """
    return (*_python(ask_for_shell.__file__), str(fd))


def confining_command(folder: str) -> list[str]:
    """Return a prefix P. The command `[*P, *command]` runs `command`, which can then write only
    below `folder`."""
    programs = (sys.executable, shutil.which("rsync") or "rsync", ask_for_shell.__file__)
    readable = {
        os.path.dirname(os.__file__),
        sys.base_prefix + "/lib",
        *map(os.path.realpath, programs),
    }
    return [*_python(confined.__file__), folder, *sorted(readable), "--"]


def rsync_environment() -> dict[str, str]:
    """Return the environment for rsync: PATH and a few other variables.

    The user's other variables are not passed on, because a host that takes over rsync could read
    secrets and the addresses of agents such as ssh-agent from them.
    """
    passed_on = ("PATH", "LD_LIBRARY_PATH")
    return {
        **{name: os.environ[name] for name in passed_on if name in os.environ},
        "LC_ALL": "C",
        "SHELL": "/bin/sh",
    }


@lru_cache(maxsize=1)
def describe_confinement_gap() -> str | None:
    """Return why a local rsync is not fully confined, or None if it is fully confined."""
    if not can_confine():
        return (
            "the programs that rsync needs do not run when they are confined"
            if confined.landlock_version()
            else "this kernel has no Landlock"
        )
    if confined.landlock_version() < 4:
        return "this kernel's Landlock restricts files, but not the network"
    return None


@lru_cache(maxsize=1)
def can_confine() -> bool:
    """True if Python and rsync can run confined on this machine.

    This is tried, because a confined program may be unable to read its own files if it is installed
    in an unusual place.
    """
    if not confined.landlock_version():
        return False
    with tempfile.TemporaryDirectory(prefix="tfdeploy-confined-") as folder:
        python = [
            *confining_command(folder),
            sys.executable,
            "-S",
            "-I",
            "-c",
            "import array, socket",
        ]
        return all(
            _succeeds(command)
            for command in (python, [*confining_command(folder), "rsync", "--version"])
        )


def _succeeds(command: list[str]) -> bool:
    try:
        completed = subprocess.run(
            command, env=rsync_environment(), capture_output=True, timeout=TRIAL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return completed.returncode == 0


def _python(file: str) -> tuple[str, ...]:
    """Return the command that runs the Python file with this interpreter."""
    return (sys.executable, "-S", "-E", os.path.realpath(file))
