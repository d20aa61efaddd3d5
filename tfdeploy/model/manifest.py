"""Define the content of a code folder, and the release hash that identifies this content.

Warn of a large release: name the paths that make it large, and how to send them once instead of
with each run. Recognise the files that `report` and `compare` write, so that no release contains
them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from tfdeploy.text.units import format_bytes


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


PAGE = "<!doctype html><!-- written by tfdeploy -->"
# A table of samples that tfdeploy wrote is recognised by this beginning of its header. The names
# are the first names in run_report.BEFORE, copied because importing run_report is slow.
TABLE = '"time","seconds","task","host","attempt",'
_BEGINNINGS = (PAGE.encode("ascii"), TABLE.encode("ascii"))


def is_written_by_tfdeploy(content: bytes) -> bool:
    """True if tfdeploy wrote the file. `content`: at least the first 64 bytes of the file."""
    return content.startswith(_BEGINNINGS)


MOST_BYTES = 50_000_000  # code with more bytes than this causes a warning
_MOST_PATHS = 3  # how many paths the warning names
_LEAST_SHARE = 0.05  # the warning names a path only if the path has this share of all bytes
# If one subfolder has at least this share of its folder's bytes, the warning names the subfolder
# instead of the folder.
_MAIN_SHARE = 0.8
_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def warn_of_large_code(manifest: Manifest) -> str | None:
    """Return a warning if the code has more than MOST_BYTES, with its largest paths and a remedy;
    None if it is smaller."""
    total = manifest.total_bytes
    if total <= MOST_BYTES:
        return None
    largest = _largest_paths(manifest)
    named = [(path, size) for path, size in largest[:_MOST_PATHS] if size >= total * _LEAST_SHARE]
    listed = (
        f": {', '.join(f'{path} ({format_bytes(size)})' for path, size in named)}" if named else ""
    )
    return (
        f"code: {format_bytes(total)} in files that .gitignore does not exclude{listed}. Every run "
        "has its own copy of these files" + _suggest_remedy(largest)
    )


def _suggest_remedy(largest: list[tuple[str, int]]) -> str:
    """Return text that says what to write so that the largest path is sent once as data, or left
    out."""
    path = largest[0][0]
    name = _NAME.sub("_", path.rstrip("/").rpartition("/")[2]).strip("_-") or "data"
    pattern = re.sub(r"([\\*?\[\]! ])", r"\\\1", "/" + path)
    source = (
        json.dumps("./" + path, ensure_ascii=False)
        if _NAME.search(path.replace("/", "").replace(".", ""))
        else "./" + path
    )
    return (
        " (with reflinks, the copies share disk space). To send the largest path only once, as "
        f"data, write `data: {{{name}: {source}}}` in the job file; "
        f"to leave it out of the code: echo {shlex.quote(pattern)} >> .tfdeployignore"
    )


def _largest_paths(manifest: Manifest) -> list[tuple[str, int]]:
    """Return (path, bytes) of files and folders, the largest first. A folder ends with "/". No path
    is inside another path."""
    sizes: Counter[str] = Counter()
    below: dict[str, set[str]] = {}
    for entry in manifest.entries:
        ends = [match.end() for match in re.finditer("/", entry.path)]
        for folder, path in pairwise(entry.path[:end] for end in (0, *ends, len(entry.path))):
            sizes[path] += entry.size
            below.setdefault(folder, set()).add(path)
    paths = [_deepest_main_folder(path, sizes, below) for path in below.get("", ())]
    return sorted(((path, sizes[path]) for path in paths), key=lambda each: (-each[1], each[0]))


def _deepest_main_folder(path: str, sizes: Counter[str], below: dict[str, set[str]]) -> str:
    """Return the deepest subfolder that has almost all bytes of `path`, or `path` itself."""
    while path in below:
        largest = max(sorted(below[path]), key=lambda child: sizes[child])
        if not largest.endswith("/") or sizes[largest] < _MAIN_SHARE * sizes[path]:
            break
        path = largest
    return path
