"""Define the content of a code folder, and the release hash that identifies this content."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple


@dataclass(frozen=True)
class ManifestEntry:
    """One file or link. `path`: relative, separated by "/"; bytes that are not UTF-8 are surrogate
    escapes."""

    path: str
    kind: Literal["file", "exec", "link"]
    size: int = 0
    sha256: str = ""  # the hash of a file's content; "" for a link
    target: str = ""  # the path that a link leads to; "" for a file
    # the stamp of a file (size, times, ...) as tree/hash_cache.make_stamp returns it
    stamp: tuple[int, ...] = field(default=(), compare=False)


class CodeFile(NamedTuple):
    """The fields of a ManifestEntry that a run records. `sum`: for a file, its sha256; for a link,
    its target."""

    kind: Literal["file", "exec", "link"]
    sum: str
    size: int


@dataclass(frozen=True)
class Manifest:
    """The entries, sorted by path. `release`: hash over path, content, executable bit and link
    target."""

    root: str  # absolute, on the control machine
    release: str
    entries: tuple[ManifestEntry, ...]
    # texts about links that lead out of the tree, withheld files that are left out, and so on
    warnings: tuple[str, ...] = ()
    # (path, line) where a private key begins in a file
    private_keys: tuple[tuple[str, int], ...] = ()

    @property
    def files(self) -> dict[str, CodeFile]:
        return {
            entry.path: CodeFile(entry.kind, entry.sha256 or entry.target, entry.size)
            for entry in self.entries
        }

    @property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.entries)
