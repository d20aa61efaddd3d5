"""The file that `RevokedHostKeys` of ssh's configuration names: public keys as text, or a list made by `ssh-keygen -k`."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

from tfdeploy.errors import HostUnreachable
from tfdeploy.transport.ssh.known_lines import keytype_of, read_line

_LIST = b"SSHKRL\n\0"


def is_revoked(path: str, key: bytes) -> bool:
    """Raises HostUnreachable where the file cannot be read: as with ssh, no key is good then."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error.strerror or "") from error
    if text.startswith(_LIST):
        return _in_list(path, key)
    lines = [line.strip(b" \t") for line in text.split(b"\n")]
    read = [read_line(b"any " + line) for line in lines if line.strip() and not line.startswith(b"#")]
    if None in read:
        raise _unreadable(path, "it has a line that is no public key")
    return any(line is not None and line.key == key for line in read)


def _in_list(path: str, key: bytes) -> bool:
    line = f"{keytype_of(key)} {base64.b64encode(key).decode()}\n".encode()
    words = ["ssh-keygen", "-Q", "-f", path, "/dev/stdin"]
    try:
        done = subprocess.run(words, input=line, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unreadable(path, str(error)) from error
    if done.returncode not in (0, 1):
        raise _unreadable(path, done.stderr.decode(errors="replace").strip())
    return done.returncode == 1


def _unreadable(path: str, why: str) -> HostUnreachable:
    return HostUnreachable(
        f"RevokedHostKeys {path} cannot be read: {why}", next="mend it, or take the line out of ssh's configuration", retries=0
    )
