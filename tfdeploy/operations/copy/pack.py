"""Small files of a release, packed once for all hosts that lack the same ones, and sent through the open session.

Large files go by rsync, which can resume a partly sent file.
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from tfdeploy.model.manifest import Manifest

MOST_BYTES = 32 << 20  # of all files together
FILE_BYTES = 4 << 20
PARCEL_BYTES = 8 << 20
NAMES_BYTES = 512 << 10  # of one parcel's paths: they are in the frame's header


@dataclass(frozen=True)
class Parcel:
    """`files`: (path, bytes, mtime_ns) of each; `packed`: zlib of their contents, concatenated."""

    files: list[tuple[str, int, int]]
    packed: bytes
    raw_bytes: int


class Packer:
    """The manifest and the parcels of one tree. Thread-safe: a second caller waits for the first and gets the same parcels."""

    def __init__(self, manifest: Manifest) -> None:
        self._root, self._entries = manifest.root, manifest.entries
        self._sizes = {entry.path: entry.size for entry in manifest.entries}
        self.paths = frozenset(self._sizes)  # all that a host may ask for
        self._lock = threading.Lock()
        self._manifest: bytes | None = None
        self._last: tuple[tuple[str, ...], list[Parcel]] | None = None

    def manifest(self) -> bytes:
        """The blob of release.begin: zlib of JSON rows [path, kind, bytes, sha256, target]."""
        with self._lock:
            if self._manifest is None:
                rows = [[each.path, each.kind, each.size, each.sha256, each.target] for each in self._entries]
                self._manifest = zlib.compress(json.dumps(rows).encode("ascii"), 1)
            return self._manifest

    def size_bytes(self, paths: list[str]) -> int:
        return sum(self._sizes[path] for path in paths)

    def fits(self, paths: list[str]) -> bool:
        """Whether these files are small enough for parcels."""
        return self.size_bytes(paths) <= MOST_BYTES and max(map(self._sizes.__getitem__, paths), default=0) <= FILE_BYTES

    def parcels(self, paths: list[str], *, fresh: bool = False) -> list[Parcel]:
        """`fresh`: read the files again. A file that cannot be read any more is left out; the host's check finds it."""
        if fresh:
            return list(self._pack(paths))
        wanted = tuple(paths)
        with self._lock:
            if self._last is None or self._last[0] != wanted:
                self._last = wanted, list(self._pack(paths))
            return self._last[1]

    def contents(self, paths: list[str]) -> dict[str, tuple[bytes, int]]:
        """path -> (content, mtime_ns), read now. A file that cannot be read any more is left out."""
        return {path: found for path in paths if (found := self._read(path)) is not None}

    def _pack(self, paths: list[str]) -> Iterator[Parcel]:
        files: list[tuple[str, int, int]] = []
        contents: list[bytes] = []
        raw_bytes = names_bytes = 0
        for path in paths:
            found = self._read(path)
            if found is None:
                continue
            content, mtime_ns = found
            files.append((path, len(content), mtime_ns))
            contents.append(content)
            raw_bytes += len(content)
            names_bytes += 6 * len(path) + 64  # JSON may need 6 bytes for a character
            if raw_bytes >= PARCEL_BYTES or names_bytes >= NAMES_BYTES:
                yield Parcel(files, zlib.compress(b"".join(contents), 1), raw_bytes)
                files, contents, raw_bytes, names_bytes = [], [], 0, 0
        if files:
            yield Parcel(files, zlib.compress(b"".join(contents), 1), raw_bytes)

    def _read(self, path: str) -> tuple[bytes, int] | None:
        try:
            descriptor = os.open(os.path.join(self._root, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as stream:
            try:
                content = stream.read(self._sizes[path] + 1)  # a file that grew fails the host's check
            except OSError:
                return None
            return content, os.fstat(descriptor).st_mtime_ns
