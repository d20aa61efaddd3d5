"""Look up the keys of a name in known_hosts files, with file and line.

This module parses lines in the usual form. For other lines (other markers, patterns, negations,
garbage) it runs `ssh-keygen -F`, one process for each name. A file is read again only if it has
changed. `accepted_keys.py` decides which key is accepted; `recording.py` writes the files.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tfdeploy.transport.ssh.host_keys import ssh_keygen
from tfdeploy.transport.ssh.host_keys.known_lines import (
    CERT_AUTHORITY,
    REVOKED,
    USUAL,
    decode_usual_key,
    is_authority,
    is_comment_or_blank,
    is_hash_of,
    keytype_of,
    may_match,
)

_MATCHED = re.compile(rb"^# Host \S+ found: line (\d+) ?(CA|REVOKED)?\s*$", re.MULTILINE)
_MARKERS = {b"": "", b"CA": CERT_AUTHORITY, b"REVOKED": REVOKED}


@dataclass(frozen=True)
class KnownKey:
    """One key of a known_hosts file, with its file and line."""

    keytype: str
    key: bytes
    file: str
    line: int  # the number of the line in the file, or 0 if unknown
    marker: str  # "", @cert-authority, @revoked

    @property
    def source(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def is_revoked(self) -> bool:
        return self.marker == REVOKED

    @property
    def is_authority(self) -> bool:
        """True if the key belongs to a certificate authority and not to a host."""
        return self.marker == CERT_AUTHORITY

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key)


class KnownFile:
    """The content of one known_hosts file, indexed by plain names. Line numbers begin with 1."""

    def __init__(self, text: bytes, path: str) -> None:
        self._path = path
        self._plain: dict[str, list[KnownKey]] = {}
        self._hashed: list[tuple[bytes, bytes, KnownKey]] = []  # (salt, digest, key)
        self._unusual: dict[int, bytes] = {}
        for number, line in enumerate(text.split(b"\n"), 1):
            if not is_comment_or_blank(line):
                self._add(number, line)

    def _add(self, number: int, line: bytes) -> None:
        """Parse one line and add its key. Store a line in an unusual form for `ssh-keygen`."""
        match = USUAL.fullmatch(line)
        key = None if match is None else decode_usual_key(match["keytype"], match["key"])
        if match is None or key is None:
            self._unusual[number] = line
            return
        marker = REVOKED if match["revoked"] else ""
        entry = KnownKey(keytype_of(key), key, self._path, number, marker)
        if match["salt"]:
            salt, digest = base64.b64decode(match["salt"]), base64.b64decode(match["digest"])
            self._hashed.append((salt, digest, entry))
            return
        for name in match["names"].decode().lower().split(","):
            self._plain.setdefault(name, []).append(entry)

    @property
    def has_hashed(self) -> bool:
        return bool(self._hashed)

    def find(self, name: str, with_authorities: bool = True) -> list[KnownKey]:
        """Return the keys of `name`, in the order of the lines.

        `with_authorities`: True to include the keys of `@cert-authority` lines. Raises
        HostUnreachable if ssh-keygen is needed but fails.
        """
        keys = [*self._plain.get(name, ())]
        keys += [key for salt, digest, key in self._hashed if is_hash_of(name, salt, digest)]
        lines = {number: line for number, line in self._unusual.items() if may_match(line, name)}
        if not with_authorities:
            lines = {number: line for number, line in lines.items() if not is_authority(line)}
        if lines:
            keys += self._find_with_openssh(lines, name)
        return sorted(keys, key=lambda key: key.line)

    def _find_with_openssh(self, line_by_number: dict[int, bytes], name: str) -> list[KnownKey]:
        """Return the keys of `name` that OpenSSH finds in these lines.

        `line_by_number`: {line number: line}.
        """
        _, output = ssh_keygen.run_keygen(
            # With -l, ssh-keygen prints only the lines that have a valid key.
            *("-l", "-F", name, "-f", "/dev/stdin"),
            stdin=b"".join(
                line_by_number.get(n, b"") + b"\n" for n in range(1, max(line_by_number) + 1)
            ),
            file=f"{self._path}:{min(line_by_number)}",
            remedy="install OpenSSH's client, or write lines without markers and patterns",
        )
        keys = []
        for number, marker_name in _MATCHED.findall(output):
            marker = _MARKERS[marker_name]
            # OpenSSH takes NUL for a separator too.
            columns = re.split(rb"[ \t\0]+", line_by_number[int(number)].lstrip(b" \t"))
            key = base64.b64decode(columns[3 if marker else 2])
            keys.append(KnownKey(keytype_of(key), key, self._path, int(number), marker))
        return keys


def fingerprint(key: bytes) -> str:
    """Return the fingerprint as OpenSSH prints it: SHA256:..."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def find(paths: Iterable[str], name: str, *, with_authorities: bool = True) -> list[KnownKey]:
    """Return the keys of `name` (`host` or `[host]:port`), file by file.

    `with_authorities`: True to include the keys of `@cert-authority` lines. To match such lines,
    ssh-keygen is run once for each name. Missing and unreadable files count as empty. Raises
    HostUnreachable if ssh-keygen is needed but fails.
    """
    return [
        key
        for path in paths
        for key in _find_cached(path, name, with_authorities, *_file_version(path))
    ]


def has_hashed(path: str) -> bool:
    """True if the file has a line with a hashed name."""
    return _load_cached(path, *_file_version(path)).has_hashed


def _file_version(path: str) -> tuple[int, ...]:
    """Return numbers that change whenever the file's content changes; () if there is no file."""
    try:
        file_stat = os.stat(path)
    except OSError:
        return ()
    return (
        file_stat.st_dev,
        file_stat.st_ino,
        file_stat.st_ctime_ns,
        file_stat.st_mtime_ns,
        file_stat.st_size,
    )


@lru_cache(maxsize=4096)
def _find_cached(
    path: str, name: str, with_authorities: bool, *version: int
) -> tuple[KnownKey, ...]:
    return tuple(_load_cached(path, *version).find(name, with_authorities))


@lru_cache(maxsize=64)
def _load_cached(path: str, *version: int) -> KnownFile:
    try:
        return KnownFile(Path(path).read_bytes() if version else b"", path)
    except OSError:
        return KnownFile(b"", path)
