"""Run `ssh-keygen`, so that OpenSSH itself interprets a file."""

from __future__ import annotations

import subprocess

from tfdeploy.errors import HostUnreachable

TIMEOUT_S = 20.0


def run_keygen(*arguments: str, stdin: bytes, file: str, remedy: str) -> tuple[bool, bytes]:
    """Run ssh-keygen. Return (True if its exit code is 0, False if it is 1; its output).

    `stdin`: its standard input. Raises HostUnreachable if ssh-keygen fails, so that no host key is
    accepted. The error names the file `file` and suggests `remedy`.
    """
    try:
        completed = subprocess.run(
            ["ssh-keygen", *arguments],
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
        if completed.returncode in (0, 1):
            return completed.returncode == 0, completed.stdout
        reason = completed.stderr.decode(errors="replace").strip()
    raise unreadable_error(file, reason, remedy)


def unreadable_error(file: str, reason: str, remedy: str) -> HostUnreachable:
    """Return the error for an unreadable file of host keys.

    As long as the file cannot be read, no host key is accepted.
    """
    return HostUnreachable(f"{file} cannot be read: {reason}", next=remedy, retries=0)
