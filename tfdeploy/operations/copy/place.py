"""Checked files from beside into their place, record of a checkpoint last. Never through a link, never over a newer file."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tfdeploy.errors import Refused
from tfdeploy.model.listing import CHECKPOINT_RECORD, FoundFile, stays_inside
from tfdeploy.operations.copy.below import Below

_BLOCK_BYTES = 1 << 20


@dataclass
class Placed:
    """`files`: put in place; `newer_here`: left as they are; `left_there`: links that would lead out."""

    files: int = 0
    newer_here: list[str] = field(default_factory=list)
    left_there: list[str] = field(default_factory=list)


def place(
    staging: Below,
    destination: Below,
    paths: Collection[str],
    found: Iterable[FoundFile],
    missing: Collection[str],
    *,
    overwrite: bool = False,
) -> Placed:
    """Moves `paths` from `staging`, and makes the links of `found`. A record stays where something beside it is `missing`.

    Raises Refused where a link or a folder is in the way, OSError.
    """
    placed = Placed()
    for path in sorted(paths, key=lambda each: (_name(each) == CHECKPOINT_RECORD, each)):
        if _name(path) == CHECKPOINT_RECORD and any(_folder(other) == _folder(path) for other in missing):
            continue
        _refuse_folder(destination, path)
        if not overwrite and _is_newer(destination, staging, path):
            placed.newer_here.append(path)
        else:
            destination.take(staging, path)
            placed.files += 1
    for link in found:
        if link.target is not None:
            _link(destination, link, link.target, placed)
    return placed


def _link(destination: Below, link: FoundFile, target: str, placed: Placed) -> None:
    if not stays_inside(link):
        placed.left_there.append(link.path)
        return
    _refuse_folder(destination, link.path)
    here = destination.stat(link.path)
    if here is not None and not stat.S_ISLNK(here.st_mode):
        placed.newer_here.append(link.path)
        return
    if here is not None:
        if destination.readlink(link.path) == target:
            return
        destination.unlink(link.path)
    destination.symlink(target, link.path)
    placed.files += 1


def _refuse_folder(destination: Below, path: str) -> None:
    here = destination.stat(path)
    if here is not None and stat.S_ISDIR(here.st_mode):
        raise Refused("a folder is in the way of a file", where=str(destination.path / path), next="move it away, or --to DIR")


def _is_newer(destination: Below, staging: Below, path: str) -> bool:
    """A file here that was changed after the host's was, and is not the same."""
    here, fetched = destination.stat(path), staging.stat(path)
    if here is None or fetched is None or not stat.S_ISREG(here.st_mode) or here.st_mtime_ns <= fetched.st_mtime_ns:
        return False
    with os.fdopen(destination.open(path), "rb") as one, os.fdopen(staging.open(path), "rb") as two:
        while block := one.read(_BLOCK_BYTES):
            if block != two.read(_BLOCK_BYTES):
                return True
        return bool(two.read(1))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
