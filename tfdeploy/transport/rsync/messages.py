"""Parse rsync's output (progress, totals, errors) and its exit codes. All functions are pure."""

from __future__ import annotations

import re
import shlex

from tfdeploy.errors import HostFailed, HostUnreachable, Refused, TfdeployError
from tfdeploy.transport.ssh.errors import printable_line
from tfdeploy.transport.ssh.target import Target

_PROGRESS = re.compile(rb"^\s*(\d{1,20})\s+\d{1,3}%")
_TOTALS = re.compile(rb"^sent (\d{1,20}) bytes\s+received (\d{1,20}) bytes")
VANISHED = 24  # rsync exits with this code if source files vanished during the transfer
# ssh prints one of these texts if sshd closes the connection before login.
_TURNED_AWAY = (
    b"kex_exchange_identification",
    b"Connection reset by",
    b"Connection closed by",
    b"Exceeded MaxStartups",
)


def parse_progress(line: bytes) -> int | None:
    """Return the bytes done from a line of --info=progress2, or None for other lines."""
    match = _PROGRESS.match(line)
    return int(match[1]) if match else None


def parse_totals(line: bytes) -> tuple[int, int] | None:
    """Return (bytes sent, bytes received) if this line of rsync's output has both, else None."""
    match = _TOTALS.match(line)
    return (int(match[1]), int(match[2])) if match else None


def is_refused_before_login(code: int, stderr: bytes) -> bool:
    """True if sshd closed the connection before login (MaxStartups), so that a retry may help."""
    return code == 255 and any(text in stderr for text in _TURNED_AWAY)


def has_shell_noise(code: int, stderr: bytes) -> bool:
    """True if rsync failed because the login shell printed something first."""
    return code in (2, 12) and b"is your shell clean" in stderr


def has_only_shrunk(code: int, stderr: bytes) -> bool:
    """True if all errors are about files that became shorter while rsync read them.

    rsync reports such a file with ENODATA (61).
    """
    lines = _error_lines(stderr)
    return code == 23 and bool(lines) and all(map(_says_shrank, lines))


def has_only_unreadable(code: int, stderr: bytes) -> bool:
    """True if all errors are about files that the sender may not read, or that vanished."""
    lines = [line for line in _error_lines(stderr) if not line.startswith(b"file has vanished: ")]
    return code == 23 and bool(lines) and all(map(_says_unreadable, lines))


def _says_unreadable(line: bytes) -> bool:
    return b"send_files failed to open " in line and line.endswith(b": Permission denied (13)")


def _says_shrank(line: bytes) -> bool:
    return (
        b"failed verification -- update " in line
        or b"(61)" in line.partition(b"read errors mapping ")[2]
    )


def explain(
    code: int, stderr: bytes, target: Target, root: str, *, into: str | None = None
) -> TfdeployError:
    """Return the error that describes a failed rsync.

    `root`: the source folder. `into`: the local destination of a pull. If `into` is None, the
    transfer is a push.
    """
    host = target.name or target.where
    line = printable_line((_error_lines(stderr) or [stderr])[0])
    if b"No space left on device" in stderr or b"Disk quota exceeded" in stderr:
        disk_line = next(
            error_line
            for error_line in stderr.splitlines()
            if b"No space left" in error_line or b"quota exceeded" in error_line
        )
        if into is not None:
            return HostFailed(
                f"the disk of this machine is full: {printable_line(disk_line)}",
                where=into,
                next="free some space on this machine",
            )
        return HostFailed(
            f"the disk is full: {printable_line(disk_line)}",
            where=host,
            next="free some space on the host, or set `workdir:`",
        )
    if code == 127 or re.search(
        rb"rsync: (command )?not found|Unknown command:? '?rsync|rsync: No such file", stderr
    ):
        return rsync_missing(target)
    if b"Host key verification failed" in stderr or b"host key is known" in stderr:
        changed = re.search(rb"(?i)has changed", stderr)
        return HostUnreachable(
            f"ssh refuses the host key: {line}",
            where=host,
            next=f"only if you know why the key has changed: `tfdeploy trust --renew {host}`"
            if changed
            else f"`tfdeploy trust --limit {host}`",
        )
    exposed = re.search(rb"Permissions \d+ for '([^']+)' are too open", stderr)
    if exposed:
        key = printable_line(exposed[1])
        return HostUnreachable(
            f"ssh does not use the key {key}, because other users can read it",
            where=host,
            next=f"`chmod 600 {shlex.quote(key)}`",
        )
    if re.search(rb"Permission denied \((?!13\))", stderr):  # (13) is from rsync, about a file
        return HostUnreachable(
            f"ssh cannot log in: {line}", where=host, next="check `user:` and `identity_file:`"
        )
    if code in (10, 12, 30, 35, 255):
        return HostUnreachable(
            f"the transfer broke off: {line}",
            where=host,
            next="type the same command again: it resumes the transfer",
        )
    if b"change_dir" in stderr and code == 23 and root.encode(errors="surrogateescape") in stderr:
        return HostFailed(
            f"the source does not exist any more: {line}",
            where=root if into is None else f"{host}: {root}",
        )
    if code in (1, 4):
        return Refused(
            f"the rsync programs of the two machines are incompatible: {line}",
            where=host,
            next="install rsync 3.1 or newer on both machines",
        )
    return HostFailed(f"rsync ended with {code}: {line}", where=host)


def rsync_missing(target: Target) -> Refused:
    """Return the error for a host on which rsync is not installed."""
    return Refused(
        "rsync is missing on the host",
        where=target.name or target.where,
        next="install the package rsync on the host",
    )


def _error_lines(stderr: bytes) -> list[bytes]:
    """Return the lines of rsync's and ssh's errors that name a cause."""
    return [
        line
        for line in stderr.splitlines()
        if line.strip() and not line.startswith((b"rsync error:", b"@@@"))
    ]
