"""known_hosts files: which keys a name is known by, with file:line, and how a new key is recorded.

Each file is read once per content. `errors.py` decides which key is accepted.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import fnmatch
import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tfdeploy.errors import HostFailed


@dataclass(frozen=True)
class KnownKey:
    keytype: str
    key: bytes
    source: str  # file:line
    revoked: bool = False


@dataclass(frozen=True)
class KnownFile:
    """One file: plain names are found by a look-up, patterns and hashed names one by one."""

    plain: dict[str, list[KnownKey]] = field(default_factory=dict)
    patterns: list[tuple[str, KnownKey]] = field(default_factory=list)  # patterns and hashed names

    def find(self, name: str) -> list[KnownKey]:
        return self.plain.get(name, []) + [key for names, key in self.patterns if _matches(names, name)]


def fingerprint(key: bytes) -> str:
    """As OpenSSH prints it: SHA256:..."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def find(paths: Iterable[str], name: str) -> list[KnownKey]:
    """The keys by which `name` (`host` or `[host]:port`) is known, in the files' order. Missing files are empty."""
    return [key for path in paths for key in _load(path).find(name)]


def record(path: str, name: str, keytype: str, key: bytes) -> None:
    """Appends one line, as a whole, under a lock; makes the file and its folder (0600, 0700) where missing.

    Raises HostFailed (of this machine) where the file cannot be written.
    """
    line = f"{name} {keytype} {base64.b64encode(key).decode()}\n".encode()
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = b"\n" + line
            os.write(handle, line)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise HostFailed(f"the key cannot be recorded: {error.strerror}", where=path) from error


def read_lines(lines: Iterable[str], path: str) -> KnownFile:
    """Pure. Lines of another form are ignored, as OpenSSH does."""
    found = KnownFile()
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0) if words[0].startswith("@") else ""
        if len(words) < 3 or marker not in ("", "@revoked"):
            continue
        try:
            key = base64.b64decode(words[2], validate=True)
        except (ValueError, binascii.Error):
            continue
        entry = KnownKey(words[1], key, f"{path}:{number}", marker == "@revoked")
        if words[0].startswith("|") or any(char in words[0] for char in "*?!"):
            found.patterns.append((words[0], entry))
        else:
            for name in words[0].lower().split(","):
                found.plain.setdefault(name, []).append(entry)
    return found


def _load(path: str) -> KnownFile:
    try:
        facts = os.stat(path)
    except OSError:
        return KnownFile()
    return _load_once(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=64)
def _load_once(path: str, mtime_ns: int, size: int) -> KnownFile:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            return read_lines(lines, path)
    except OSError:
        return KnownFile()


def _matches(names: str, name: str) -> bool:
    if names.startswith("|1|"):
        try:
            salt, digest = (base64.b64decode(part) for part in names.split("|")[2:4])
        except (ValueError, binascii.Error):
            return False
        return hmac.new(salt, name.encode(), hashlib.sha1).digest() == digest
    matched = False
    for pattern in names.lower().split(","):
        refused = pattern.startswith("!")
        if fnmatch.fnmatchcase(name, pattern.lstrip("!").replace("[", "[[]")):
            if refused:
                return False
            matched = True
    return matched
