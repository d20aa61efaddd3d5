"""Run `ssh-keygen`, so that OpenSSH itself interprets a file."""

from __future__ import annotations

import subprocess

from tfdeploy.errors import HostUnreachable

TIMEOUT_S = 20.0


def ask(*words: str, stdin: bytes, about: str, remedy: str) -> tuple[bool, bytes]:
    """Run ssh-keygen. Return (True for exit code 0 or False for exit code 1, its output).

    `stdin`: its standard input. Raises HostUnreachable if ssh-keygen fails, so that no host key is
    accepted. The error names the file `about` and suggests `remedy`.
    """
    try:
        done = subprocess.run(
            ["ssh-keygen", *words],
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        reason = "this machine has no ssh-keygen"
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    else:
        if done.returncode in (0, 1):
            return done.returncode == 0, done.stdout
        reason = done.stderr.decode(errors="replace").strip()
    raise unreadable(about, reason, remedy)


def unreadable(about: str, reason: str, remedy: str) -> HostUnreachable:
    """Return the error for an unreadable file of host keys. Then no host key is accepted."""
    return HostUnreachable(f"{about} cannot be read: {reason}", next=remedy, retries=0)
