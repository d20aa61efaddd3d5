"""Warn of a large release: name the paths that make it large, and how to send them once instead of
with each run. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from itertools import pairwise

from tfdeploy.model.manifest import Manifest
from tfdeploy.model.text.units import format_bytes

MOST_BYTES = 50_000_000  # code with more bytes than this causes a warning
_MOST_PATHS = 3  # how many paths the warning names
_LEAST_SHARE = 0.05  # the warning names a path only if the path has this share of all bytes
# If one subfolder has this share of its folder's bytes, the warning names the subfolder.
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
    """Return what to write so that the largest path is either sent once as data or left out."""
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
