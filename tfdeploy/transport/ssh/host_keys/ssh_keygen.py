"""Ask `ssh-keygen` what OpenSSH makes of a file."""

from __future__ import annotations

import subprocess

from tfdeploy.errors import HostUnreachable

TIMEOUT_S = 20.0


def ask(*words: str, stdin: bytes, about: str, remedy: str) -> tuple[bool, bytes]:
    """Return whether ssh-keygen ended with 0, not 1, and what it printed. `stdin`: its /dev/stdin.

    Raises HostUnreachable, with `about` and `remedy`, where it has no answer: then no host key is
    good.
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
    """Return the error for a file of host keys that cannot be read: no host key is good then."""
    return HostUnreachable(f"{about} cannot be read: {reason}", next=remedy, retries=0)
