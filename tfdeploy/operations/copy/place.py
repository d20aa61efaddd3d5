"""Move checked files from a staging folder to their destination.

Checkpoint records (files named `checkpoint`, by which TensorFlow finds the newest checkpoint) are
moved last. No link is followed. A newer local file is replaced only if the caller requests it.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tfdeploy.errors import Refused
from tfdeploy.model.answers.files import CHECKPOINT_RECORD, FoundFile, link_stays_inside
from tfdeploy.operations.copy.safe_folder import SafeFolder

_BLOCK_BYTES = 1 << 20


@dataclass
class PlacedFiles:
    """The result of `put_in_place`.

    `files` counts the files and links that were put in place. `newer_here` are the paths of local
    files that were not replaced. `left_there` are the paths of links that were not made, because
    they lead out of the folder. `unreadable` are the paths of files that the host's user may not
    read.
    """

    files: int = 0
    newer_here: list[str] = field(default_factory=list)
    left_there: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def put_in_place(
    staging: SafeFolder,
    destination: SafeFolder,
    paths: Collection[str],
    listed_files: Iterable[FoundFile],
    missing_paths: Collection[str],
    *,
    overwrite: bool = False,
) -> PlacedFiles:
    """Move the files `paths` from `staging` to `destination`, and make the symbolic links.

    A link is made for each entry of `listed_files` that has a `target`. A checkpoint record (a file
    named `checkpoint`) is not moved if `missing_paths` contains a file of the same folder. Raises
    OSError, and Refused if a link or a folder is in the way.
    """
    placed = PlacedFiles()
    for path in sorted(
        paths, key=lambda each: (posixpath.basename(each) == CHECKPOINT_RECORD, each)
    ):
        if posixpath.basename(path) == CHECKPOINT_RECORD and any(
            posixpath.dirname(other) == posixpath.dirname(path) for other in missing_paths
        ):
            continue
        _refuse_existing_folder(destination, path)
        if not overwrite and _is_local_file_newer(destination, staging, path):
            placed.newer_here.append(path)
        else:
            destination.move_from(staging, path)
            placed.files += 1
    for link in listed_files:
        if link.target is not None:
            _make_link(destination, link, link.target, placed)
    return placed


def _make_link(destination: SafeFolder, link: FoundFile, target: str, placed: PlacedFiles) -> None:
    """Make a link, unless it leads out of the folder or a local file has its path.

    `placed` records what was done.
    """
    if not link_stays_inside(link):
        placed.left_there.append(link.path)
        return
    _refuse_existing_folder(destination, link.path)
    existing = destination.stat(link.path)
    if existing is not None and not stat.S_ISLNK(existing.st_mode):
        placed.newer_here.append(link.path)
        return
    if existing is not None:
        if destination.readlink(link.path) == target:
            return
        destination.unlink(link.path)
    destination.symlink(target, link.path)
    placed.files += 1


def _refuse_existing_folder(destination: SafeFolder, path: str) -> None:
    existing = destination.stat(path)
    if existing is not None and stat.S_ISDIR(existing.st_mode):
        raise Refused(
            "a folder is in the way of a file",
            where=str(destination.path / path),
            next="move the folder away, or use --to DIR",
        )


def _is_local_file_newer(destination: SafeFolder, staging: SafeFolder, path: str) -> bool:
    """Return whether the local file has other content than the fetched file and a later mtime."""
    existing, fetched = destination.stat(path), staging.stat(path)
    if (
        existing is None
        or fetched is None
        or not stat.S_ISREG(existing.st_mode)
        or existing.st_mtime_ns <= fetched.st_mtime_ns
    ):
        return False
    with (
        os.fdopen(destination.open(path), "rb") as local_file,
        os.fdopen(staging.open(path), "rb") as fetched_file,
    ):
        while block := local_file.read(_BLOCK_BYTES):
            if block != fetched_file.read(_BLOCK_BYTES):
                return True
        return bool(fetched_file.read(1))
