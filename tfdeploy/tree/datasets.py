"""A data set on the control machine -> its listing. Its content is not read: size and time show whether it changed.

The digest is the agent's (wire.data_digest), so that both sides have the same digest for the same state.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfdeploy.agent import wire
from tfdeploy.errors import ConfigError, Refused
from tfdeploy.tree.links import leads_out

Row = tuple[str, int, int, str, str]  # path, size, mtime in whole seconds, "file" or "link", target


@dataclass(frozen=True)
class DataListing:
    """`source`: absolute path. A single file is listed under its own name."""

    source: str
    is_folder: bool
    digest: str
    total_bytes: int
    files: int
    warnings: tuple[str, ...] = ()  # links that lead out of it
    names: bytes = b""  # wire.name_key of each path, one after the other
    stamp: str = ""  # changes with any write; finer than the digest, and valid on this machine only


def read_data(path: Path) -> DataListing:
    """The listing of a folder or file. Raises ConfigError (missing) and Refused (empty, unreadable, strange)."""
    source = os.path.abspath(path)
    stamp = hashlib.sha256()
    try:
        found = os.stat(source)
        rows = list(_walk(source, stamp)) if stat.S_ISDIR(found.st_mode) else [_single(source, stamp)]
    except FileNotFoundError as error:
        raise ConfigError("the data set does not exist", where=source, next="correct `data:` in the job file") from error
    except OSError as error:
        raise Refused(f"the data set cannot be read: {error.strerror}", where=source, next="make it readable for you") from error
    if not any(kind == "file" for _, _, _, kind, _ in rows):
        raise Refused("the data set holds no file to send", where=source, next="correct `data:` in the job file")
    top = os.path.realpath(source)
    outside = [
        f"{row[0]} is a link out of the data set (to {row[4]})" for row in rows if row[4] and leads_out(top, row[0], row[4])
    ]
    total = sum(size for _, size, _, _, _ in rows)
    digest, names = wire.data_digest(rows), b"".join(wire.name_key(row[0]) for row in rows)
    return DataListing(source, stat.S_ISDIR(found.st_mode), digest, total, len(rows), tuple(outside), names, stamp.hexdigest())


def _single(source: str, stamp: hashlib._Hash) -> Row:
    if os.path.islink(source):
        raise Refused("the data set is a link to a file", where=source, next=f"name the file itself: {os.path.realpath(source)}")
    return _row(os.path.basename(source), source, os.lstat(source), stamp)


def _walk(folder: str, stamp: hashlib._Hash, prefix: str = "") -> Iterator[Row]:
    with os.scandir(os.path.join(folder, prefix)) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(folder, stamp, path + "/")
            else:
                yield _row(path, entry.path, entry.stat(follow_symlinks=False), stamp)


def _row(path: str, place: str, found: os.stat_result, stamp: hashlib._Hash) -> Row:
    stamp.update(os.fsencode(f"{path}\0{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}\0"))
    if stat.S_ISLNK(found.st_mode):
        return path, 0, 0, "link", os.readlink(place)
    if not stat.S_ISREG(found.st_mode):
        raise Refused("neither a file, a link nor a folder", where=place, next="move it out of the data set")
    return path, found.st_size, found.st_mtime_ns // 1_000_000_000, "file", ""
