"""Check the files that a host lists in one of its folders (paths, sizes, times) before they are
used.

Pure. A path that could lead out of the folder to which it is copied is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from tfdeploy.model.typed import BigCount, Text, is_safe_relative_path

MOST_FILES = 1_000_000  # the most files in one listing
CHECKPOINT_RECORD = "checkpoint"  # TensorFlow's own file that names the newest checkpoint


class FoundFile(NamedTuple):
    """One file, or one link (`target`), as the host sends it: [path, size, mtime_ns, target or
    null].

    `path` has the same form as in manifest.ManifestEntry. `mtime_ns` is a time of the host's clock.
    """

    path: Text
    size: BigCount
    mtime_ns: BigCount
    target: Text | None = None

    @property
    def is_checkpoint_record(self) -> bool:
        return self.path.rpartition("/")[2] == CHECKPOINT_RECORD


def validate_listing(files: Iterable[FoundFile]) -> tuple[FoundFile, ...]:
    """Return the files sorted by path. Raises ValueError if the files cannot exist together in one
    folder."""
    files_by_path: dict[str, FoundFile] = {}
    for file in files:
        if not is_safe_relative_path(file.path):
            raise ValueError(f"the path {file.path!r:.200} leads out of the folder")
        if file.path in files_by_path:
            raise ValueError(f"{file.path!r} occurs twice")
        files_by_path[file.path] = file
        if len(files_by_path) > MOST_FILES:
            raise ValueError(f"more than {MOST_FILES} files")
    # In this order a path comes directly before the paths below it.
    paths = sorted(files_by_path, key=lambda path: path.replace("/", "\0"))
    for path, following in pairwise(paths):
        if following.startswith(path + "/"):
            raise ValueError(f"{following!r} is below {path!r}, which is not a folder")
    return tuple(files_by_path[path] for path in sorted(files_by_path))


def link_stays_inside(link: FoundFile) -> bool:
    """True if the link's target is in the same tree. Only the target's text is checked. `..` may
    occur only at the beginning of the target, and at most as often as the tree has folders above
    the link."""
    remainder, ups = link.target or "", 0
    while remainder.startswith("../"):
        remainder, ups = remainder[3:], ups + 1
    return ups <= link.path.count("/") and is_safe_relative_path(remainder)


def newest_mtimes_ns(listed_files: Iterable[FoundFile]) -> tuple[int, int]:
    """Return (mtime_ns of the newest `checkpoint` record, mtime_ns of the newest file), each 0 if
    there is no such file. Of two folders, the one with the greater pair is newer."""
    files = [file for file in listed_files if file.target is None]
    records = [file.mtime_ns for file in files if file.is_checkpoint_record]
    return max(records, default=0), max((file.mtime_ns for file in files), default=0)
