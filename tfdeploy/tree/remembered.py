"""Hashes remembered between two calls, so that an unchanged file costs one stat.

A cache in the state folder: what cannot be read or written is as if it were not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

SETTLED_NS = 2_000_000_000  # a file changed more recently could change again without another time to show for it
Stamp = tuple[int, int, int, int, int]  # size, mtime_ns, ctime_ns, inode, device


def stamp(found: os.stat_result) -> Stamp:
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)


class RememberedHashes:
    """The hashes of one tree, by path and stamp. `folder` None: remembers nothing."""

    def __init__(self, folder: Path | None, root: str) -> None:
        self._file = folder / (hashlib.sha256(os.fsencode(root)).hexdigest()[:32] + ".json") if folder else None
        self._known = self._load()
        self._now: dict[str, tuple[Stamp, str]] = {}

    def get(self, path: str, now: Stamp) -> str | None:
        """The hash of the content that had exactly this stamp."""
        known = self._known.get(path)
        if known is None or known[0] != now:
            return None
        self._now[path] = known
        return known[1]

    def put(self, path: str, now: Stamp, sha256: str, read_ns: int) -> None:
        """`read_ns`: UTC nanoseconds before the content was read."""
        if now[1] < read_ns - SETTLED_NS:
            self._now[path] = (now, sha256)

    def save(self) -> None:
        """Remembers what this call saw, and forgets the rest."""
        if self._file is None or self._now == self._known:
            return
        temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}.{time.monotonic_ns()}")
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                temporary.write_text(json.dumps({path: [*key, sha256] for path, (key, sha256) in self._now.items()}))
                temporary.replace(self._file)
            finally:
                temporary.unlink(missing_ok=True)

    def _load(self) -> dict[str, tuple[Stamp, str]]:
        if self._file is None:
            return {}
        try:
            rows = json.loads(self._file.read_bytes())
            return {
                path: ((size, mtime, ctime, inode, device), sha)
                for path, (size, mtime, ctime, inode, device, sha) in rows.items()
            }
        except (OSError, ValueError, TypeError, AttributeError):
            return {}
