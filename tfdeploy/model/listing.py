"""What a host says lies in one of its folders: paths, sizes, times. Checked before anything is done with it.

Pure. A path that could lead out of the folder it is brought to does not pass, whatever the host says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MOST_FILES = 1_000_000
LONGEST_PATH = 4096
RECORD = "checkpoint"  # TensorFlow's own file that names the newest checkpoint


@dataclass(frozen=True)
class FoundFile:
    """One file, or one link (`target`). Paths as in Entry; mtime in nanoseconds of the host's clock."""

    path: str
    size: int
    mtime_ns: int
    target: str | None = None

    @property
    def is_record(self) -> bool:
        return self.path.rpartition("/")[2] == RECORD


def read_rows(rows: Iterable[Any]) -> tuple[FoundFile, ...]:
    """[path, size, mtime_ns, target or null] each, sorted by path. Raises ValueError with what is wrong with one."""
    found: dict[str, FoundFile] = {}
    for row in rows:
        one = _read(row)
        if one.path in found:
            raise ValueError(f"{one.path!r} occurs twice")
        found[one.path] = one
        if len(found) > MOST_FILES:
            raise ValueError(f"more than {MOST_FILES} files")
    for one in found.values():
        above = one.path.rpartition("/")[0]
        while above:
            if above in found:
                raise ValueError(f"{above!r} is no folder, but {one.path!r} leads through it")
            above = above.rpartition("/")[0]
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
    """Relative, plain, of a length that a file system takes, and of characters that a file's name can be made of."""
    if len(path) > LONGEST_PATH or "\0" in path or any(word in ("", ".", "..") for word in path.split("/")):
        return False
    try:
        return bool(path.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # half of a pair
        return False


def stays_inside(link: FoundFile) -> bool:
    """Whether a link's target is in the same tree, by its words alone: `..` only at the front, and not too many."""
    words = (link.target or "").split("/")
    ups = next((number for number, word in enumerate(words) if word != ".."), len(words))
    rest = "/".join(words[ups:])
    return bool(rest) and ups <= link.path.count("/") and is_inside(rest)


def newest(found: Iterable[FoundFile]) -> tuple[int, int]:
    """(mtime_ns of the newest `checkpoint` record, of the newest file), 0 where there is none. The greater pair is newer."""
    files = [one for one in found if one.target is None]
    records = [one.mtime_ns for one in files if one.is_record]
    return max(records, default=0), max((one.mtime_ns for one in files), default=0)
