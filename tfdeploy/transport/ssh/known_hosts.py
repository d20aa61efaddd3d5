"""known_hosts files: which keys a name is known by, with file:line.

Each file is read once per content. `host_keys.py` decides which key is accepted; `recording.py` writes.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tfdeploy.transport.ssh.known_lines import CERT_AUTHORITY, REVOKED, hash_parts, is_hash_of, matches, read_line


@dataclass(frozen=True)
class KnownKey:
    keytype: str
    key: bytes
    file: str
    line: int  # 0: the file has no lines
    marker: str = ""

    @property
    def source(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def revoked(self) -> bool:
        return self.marker == REVOKED

    @property
    def authority(self) -> bool:
        """It signs host certificates; it is no host's own key."""
        return self.marker == CERT_AUTHORITY

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key)


@dataclass(frozen=True)
class KnownFile:
    """One file: plain names are found by a look-up, patterns and hidden names one by one."""

    plain: dict[str, list[KnownKey]] = field(default_factory=dict)
    patterns: list[tuple[str, KnownKey]] = field(default_factory=list)
    hidden: list[tuple[bytes, bytes, KnownKey]] = field(default_factory=list)  # salt, digest

    def find(self, name: str) -> list[KnownKey]:
        """In the order of the lines."""
        found = self.plain.get(name, []) + [key for names, key in self.patterns if matches(names, name)]
        found += [key for salt, digest, key in self.hidden if is_hash_of(name, salt, digest)]
        return sorted(found, key=lambda key: key.line)


def fingerprint(key: bytes) -> str:
    """As OpenSSH prints it: SHA256:..."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def find(paths: Iterable[str], name: str) -> list[KnownKey]:
    """The keys by which `name` (`host` or `[host]:port`) is known, file by file. Missing and unreadable files are empty."""
    return [key for path in paths for key in _find_once(path, name, *_version(path))]


def has_hidden(path: str) -> bool:
    """Whether some line of the file hides its name."""
    return bool(_load_once(path, *_version(path)).hidden)


def read_lines(lines: Iterable[bytes], path: str) -> KnownFile:
    """Pure. Lines that OpenSSH ignores are ignored."""
    found = KnownFile()
    for number, line in enumerate(lines, 1):
        if (known := read_line(line)) is None:
            continue
        entry = KnownKey(known.keytype, known.key, path, number, known.marker)
        if (parts := hash_parts(known.names)) is not None:
            found.hidden.append((*parts, entry))
        elif not known.plain:
            found.patterns.append((known.names, entry))
        else:
            for name in known.names.lower().split(","):
                found.plain.setdefault(name, []).append(entry)
    return found


def _version(path: str) -> tuple[int, ...]:
    """What tells one content of the file from another; empty where there is no file."""
    try:
        facts = os.stat(path)
    except OSError:
        return ()
    return facts.st_dev, facts.st_ino, facts.st_ctime_ns, facts.st_mtime_ns, facts.st_size


@lru_cache(maxsize=4096)
def _find_once(path: str, name: str, *version: int) -> tuple[KnownKey, ...]:
    return tuple(_load_once(path, *version).find(name))


@lru_cache(maxsize=64)
def _load_once(path: str, *version: int) -> KnownFile:
    try:
        return read_lines(Path(path).read_bytes().split(b"\n") if version else (), path)
    except OSError:
        return KnownFile()
