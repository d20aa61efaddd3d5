"""Find the sshd program, and write one host's configuration. This module starts no process."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from tfdeploy.errors import Refused

STANDARD_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def find_program(name: str) -> str | None:
    """Return the path of a program, searched in PATH and then in the system's folders."""
    return shutil.which(name) or shutil.which(name, path=STANDARD_PATH)


def require_program(name: str, package: str) -> str:
    """Return the path of a program. Raises Refused, which names the package that contains the
    program."""
    path = find_program(name)
    if path is None:
        raise Refused(
            f"{name} is not installed",
            where="this machine",
            next=f"as root: apt-get install {package}; or `make setup`",
        )
    return path


def make_sshd_command(config_file: Path) -> list[str]:
    """Return the command that runs sshd in the foreground. Raises Refused if there is no sshd."""
    return [require_program("sshd", "openssh-server"), "-D", "-e", "-f", str(config_file)]


def host_search_path() -> str:
    """Return the hosts' PATH: the standard folders, then the folder of this machine's rsync."""
    rsync = Path(require_program("rsync", "rsync")).parent
    return STANDARD_PATH if str(rsync) in STANDARD_PATH.split(":") else f"{STANDARD_PATH}:{rsync}"


def _quote_value(value: object) -> str:
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def format_sshd_config(
    *,
    address: str,
    port: int,
    host_key: Path,
    authorized_keys: Path,
    pid_file: Path,
    env: dict[str, str],
) -> str:
    """Return the whole text of an sshd_config.

    MaxStartups, MaxSessions and PerSourcePenalties keep sshd's defaults. A host of a lab therefore
    refuses connections in the same cases as a real host.
    """
    lines = [
        f"ListenAddress {address}",
        f"Port {port}",
        f"HostKey {_quote_value(host_key)}",
        f"AuthorizedKeysFile {_quote_value(authorized_keys)}",
        f"PidFile {_quote_value(pid_file)}",
        "UsePAM no",
        "StrictModes no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PrintMotd no",
        "PrintLastLog no",
        "Subsystem sftp internal-sftp",
        "SetEnv " + " ".join(_quote_value(f"{name}={value}") for name, value in env.items()),
    ]
    return "\n".join(lines) + "\n"


def make_privilege_folder() -> None:
    """Create /run/sshd, which sshd needs if root starts it.

    Usually the distribution's sshd service creates this folder. Users other than root cannot create
    the folder, and do not need it.
    """
    with suppress(PermissionError):
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def read_pid(pid_file: Path) -> int | None:
    """Return the pid in the file that sshd writes when it begins to listen.

    Return None if sshd does not listen yet, or has ended normally.
    """
    try:
        return int(pid_file.read_text())
    except (OSError, ValueError):
        return None
