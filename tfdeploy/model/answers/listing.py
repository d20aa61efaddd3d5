"""The files that a host lists in one of its folders: paths, sizes, times. Checked before anything
is done with them.

Pure. A path that could lead out of the folder it is copied to is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from tfdeploy.model.answers.bounds import BigCount, Text

MOST_FILES = 1_000_000
LONGEST_PATH = 4096
CHECKPOINT_RECORD = "checkpoint"  # TensorFlow's own file that names the newest checkpoint


class FoundFile(NamedTuple):
    """One file, or one link (`target`), as the host sends it: [path, size, mtime_ns, target or
    null].

    Paths as in Entry; mtime in nanoseconds of the host's clock.
    """

    path: Text
    size: BigCount
    mtime_ns: BigCount
    target: Text | None = None

    @property
    def is_record(self) -> bool:
        return self.path.rpartition("/")[2] == CHECKPOINT_RECORD


def checked(files: Iterable[FoundFile]) -> tuple[FoundFile, ...]:
    """Return the files sorted by path. Raises ValueError if they cannot lie in one folder."""
    files_by_path: dict[str, FoundFile] = {}
    for file in files:
        if not is_inside(file.path):
            raise ValueError(f"the path {file.path!r:.200} leads out")
        if file.path in files_by_path:
            raise ValueError(f"{file.path!r} occurs twice")
        files_by_path[file.path] = file
        if len(files_by_path) > MOST_FILES:
            raise ValueError(f"more than {MOST_FILES} files")
    # In this order a path stands directly before those below it.
    for path, following in pairwise(
        sorted(files_by_path, key=lambda path: path.replace("/", "\0"))
    ):
        if following.startswith(path + "/"):
            raise ValueError(f"{path!r} is no folder, but {following!r} leads through it")
    return tuple(files_by_path[path] for path in sorted(files_by_path))


def is_inside(path: str) -> bool:
    """Whether the path is relative, without empty, `.` and `..` parts, and one that a file system
    can hold."""
    if (
        len(path) > LONGEST_PATH
        or "\0" in path
        or any(word in ("", ".", "..") for word in path.split("/"))
    ):
        return False
    try:
        return bool(path.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def stays_inside(link: FoundFile) -> bool:
    """Whether a link's target is in the same tree, by its text alone: `..` only at the front, and
    not too many."""
    words = (link.target or "").split("/")
    ups = next((number for number, word in enumerate(words) if word != ".."), len(words))
    rest = "/".join(words[ups:])
    return bool(rest) and ups <= link.path.count("/") and is_inside(rest)


def newest(listed_files: Iterable[FoundFile]) -> tuple[int, int]:
    """(mtime_ns of the newest `checkpoint` record, of the newest file), 0 where there is none. The
    greater pair is newer."""
    files = [file for file in listed_files if file.target is None]
    records = [file.mtime_ns for file in files if file.is_record]
    return max(records, default=0), max((file.mtime_ns for file in files), default=0)
