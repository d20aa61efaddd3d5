"""What makes the code of a release large, and how to send it once instead of with each run. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter

from tfdeploy.model.manifest import Manifest
from tfdeploy.model.units import in_bytes

MOST_BYTES = 50_000_000  # of code that nobody need be told of
_SHOWN = 3
_LEAST_SHARE = 0.05  # of the whole: smaller paths are not named
_MOST_OF_IT = 0.8  # a folder is named by the one in it that has so much of it
_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def large_code(manifest: Manifest) -> str | None:
    """A warning for more than MOST_BYTES, with the largest paths and what to write; None: it is small enough."""
    total = manifest.total_bytes
    if total <= MOST_BYTES:
        return None
    found = _largest(manifest)
    named = [(path, size) for path, size in found[:_SHOWN] if size >= total * _LEAST_SHARE]
    listed = f": {', '.join(f'{path} ({in_bytes(size)})' for path, size in named)}" if named else ""
    return f"code: {in_bytes(total)} that .gitignore does not name{listed}. Every run has its own copy of it" + _remedy(found)


def _remedy(found: list[tuple[str, int]]) -> str:
    """The lines for the largest path."""
    path = found[0][0]
    name = _NAME.sub("_", path.rstrip("/").rpartition("/")[2]).strip("_-") or "data"
    pattern = re.sub(r"([\\*?\[\]! ])", r"\\\1", "/" + path)
    source = json.dumps("./" + path, ensure_ascii=False) if _NAME.search(path.replace("/", "").replace(".", "")) else "./" + path
    return (
        f" (file systems with reflinks share the blocks). As data it is sent once: `data: {{{name}: {source}}}` in the job file; "
        f"to leave it out: echo {shlex.quote(pattern)} >> .tfdeployignore"
    )


def _largest(manifest: Manifest) -> list[tuple[str, int]]:
    """(path, bytes) of files and folders (with "/" at the end) that lie in no other one named, the largest first."""
    sizes: Counter[str] = Counter()
    below: dict[str, set[str]] = {}
    for entry in manifest.entries:
        if not entry.size:
            continue
        child, end = entry.path, len(entry.path)
        sizes[child] += entry.size
        while (end := entry.path.rfind("/", 0, end)) >= 0:
            folder = entry.path[: end + 1]
            sizes[folder] += entry.size
            below.setdefault(folder, set()).add(child)
            child = folder
        below.setdefault("", set()).add(child)
    found = [_narrowed(path, sizes, below) for path in below.get("", ())]
    return sorted(((path, sizes[path]) for path in found), key=lambda each: (-each[1], each[0]))


def _narrowed(path: str, sizes: Counter[str], below: dict[str, set[str]]) -> str:
    while path in below:
        largest = max(sorted(below[path]), key=lambda child: sizes[child])
        if not largest.endswith("/") or sizes[largest] < _MOST_OF_IT * sizes[path]:
            break
        path = largest
    return path
