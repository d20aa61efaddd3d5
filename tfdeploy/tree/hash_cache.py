"""Cache the hashes of files on disk, so that an unchanged file is not read again.

The cache is in the state folder. An unreadable cache file counts as empty. If the cache file cannot
be written, the hashes are not saved; that is no error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

import msgspec

from tfdeploy.machine.private_files import make_private_folder, write_private_file
from tfdeploy.text.typed import convert

# Nanoseconds. A file that changed less than this time before it was read is not cached, because it
# could change again without a new mtime.
SETTLED_NS = 2_000_000_000
FileStamp = tuple[int, int, int, int, int]  # the numbers: size, mtime_ns, ctime_ns, inode, device
# (stamp, sha256 of the content, line number of the first private key in the content or 0)
CachedHash = tuple[FileStamp, str, int]


def make_stamp(file_stat: os.stat_result) -> FileStamp:
    """Return the fields of a stat result that differ if a file has changed."""
    return (
        file_stat.st_size,
        file_stat.st_mtime_ns,
        file_stat.st_ctime_ns,
        file_stat.st_ino,
        file_stat.st_dev,
    )


class HashCache:
    """The cached hashes of one tree, by path and stamp.

    `folder`: the folder of the cache file. If `folder` is None, hashes are not stored.
    """

    def __init__(self, folder: Path | None, root: str) -> None:
        self._file = (
            folder / (hashlib.sha256(os.fsencode(root)).hexdigest()[:32] + ".json")
            if folder
            else None
        )
        self._loaded = self._load()
        self._current: dict[str, CachedHash] = {}

    def get(self, path: str, current_stamp: FileStamp) -> CachedHash | None:
        """Return the cached row of the file `path`, or None if its stamp is not `current_stamp`."""
        cached = self._loaded.get(path)
        if cached is None or cached[0] != current_stamp:
            return None
        self._current[path] = cached
        return cached

    def put(
        self, path: str, file_stamp: FileStamp, sha256: str, read_ns: int, private_key_line: int = 0
    ) -> None:
        """Add a hash to the cache, unless the file changed shortly before it was read.

        `file_stamp`: the stamp of the file. `read_ns`: when the reading of the content began, in
        UTC nanoseconds.
        """
        if file_stamp[1] < read_ns - SETTLED_NS:
            self._current[path] = (file_stamp, sha256, private_key_line)

    def save(self) -> None:
        """Write the hashes that `get` has returned and `put` has added. Drop all others."""
        if self._file is None or self._current == self._loaded:
            return
        with contextlib.suppress(OSError):
            make_private_folder(self._file.parent)
            write_private_file(self._file, json.dumps(self._current))

    def _load(self) -> dict[str, CachedHash]:
        if self._file is None:
            return {}
        try:
            return convert(json.loads(self._file.read_bytes()), dict[str, CachedHash])
        except (OSError, ValueError, msgspec.ValidationError, RecursionError):
            return {}
