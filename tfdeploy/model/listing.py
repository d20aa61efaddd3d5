"""The files that a host lists in one of its folders: paths, sizes, times. Checked before anything is done with them.

Pure. A path that could lead out of the folder it is copied to is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

MOST_FILES = 1_000_000
LONGEST_PATH = 4096
CHECKPOINT_RECORD = "checkpoint"  # TensorFlow's own file that names the newest checkpoint


@dataclass(frozen=True)
class FoundFile:
    """One file, or one link (`target`). Paths as in Entry; mtime in nanoseconds of the host's clock."""

    path: str
    size: int
    mtime_ns: int
    target: str | None = None

    @property
    def is_record(self) -> bool:
        return self.path.rpartition("/")[2] == CHECKPOINT_RECORD


def read_rows(rows: Iterable[Any]) -> tuple[FoundFile, ...]:
    """[path, size, mtime_ns, target or null] each, sorted by path. Raises ValueError that says what is wrong."""
    found: dict[str, FoundFile] = {}
    for row in rows:
        file = _read(row)
        if file.path in found:
            raise ValueError(f"{file.path!r} occurs twice")
        found[file.path] = file
        if len(found) > MOST_FILES:
            raise ValueError(f"more than {MOST_FILES} files")
    # In this order a path stands directly before those below it.
    for path, following in pairwise(sorted(found, key=lambda path: path.replace("/", "\0"))):
        if following.startswith(path + "/"):
            raise ValueError(f"{path!r} is no folder, but {following!r} leads through it")
    return tuple(found[path] for path in sorted(found))


def _read(row: Any) -> FoundFile:
    if not isinstance(row, list) or len(row) != 4:
        raise ValueError(f"a row is not [path, size, mtime_ns, target]: {row!r:.100}")
    path, size, mtime_ns, target = row
    if not isinstance(path, str) or not is_inside(path):
        raise ValueError(f"the path {path!r:.200} leads out")
    if type(size) is not int or type(mtime_ns) is not int or not 0 <= size < 1 << 63 or not 0 <= mtime_ns < 1 << 63:
        raise ValueError(f"{path!r:.200} has no size or time")
    if target is not None and not isinstance(target, str):
        raise ValueError(f"the target of {path!r:.200} is no text")
    return FoundFile(path, size, mtime_ns, target)


def is_inside(path: str) -> bool:
    """Whether the path is relative, without empty, `.` and `..` parts, and one that a file system can hold."""
    if len(path) > LONGEST_PATH or "\0" in path or any(word in ("", ".", "..") for word in path.split("/")):
        return False
    try:
        return bool(path.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def stays_inside(link: FoundFile) -> bool:
    """Whether a link's target is in the same tree, by its text alone: `..` only at the front, and not too many."""
    words = (link.target or "").split("/")
    ups = next((number for number, word in enumerate(words) if word != ".."), len(words))
    rest = "/".join(words[ups:])
    return bool(rest) and ups <= link.path.count("/") and is_inside(rest)


def newest(found: Iterable[FoundFile]) -> tuple[int, int]:
    """(mtime_ns of the newest `checkpoint` record, of the newest file), 0 where there is none. The greater pair is newer."""
    files = [file for file in found if file.target is None]
    records = [file.mtime_ns for file in files if file.is_record]
    return max(records, default=0), max((file.mtime_ns for file in files), default=0)
