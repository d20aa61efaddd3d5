"""Checked files from beside into their place, record of a checkpoint last. Never through a link, never over a newer file."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tfdeploy.errors import Refused
from tfdeploy.model.listing import RECORD, Found, stays_inside


@dataclass
class Placed:
    """`files`: put in place; `newer_here`: left as they are; `left_there`: links that would lead out."""

    files: int = 0
    newer_here: list[str] = field(default_factory=list)
    left_there: list[str] = field(default_factory=list)


def place(
    staging: Path,
    destination: Path,
    paths: Collection[str],
    found: Iterable[Found],
    missing: Collection[str],
    *,
    overwrite: bool = False,
) -> Placed:
    """Moves `paths` from `staging`, and makes the links of `found`. A record stays where something beside it is `missing`.

    Raises Refused where a link or a folder is in the way, OSError.
    """
    placed = Placed()
    for path in sorted(paths, key=lambda each: (_name(each) == RECORD, each)):
        if _name(path) == RECORD and any(_folder(other) == _folder(path) for other in missing):
            continue
        target = _target(destination, path)
        if not overwrite and _is_newer(target, staging / path):
            placed.newer_here.append(path)
        else:
            (staging / path).replace(target)
            placed.files += 1
    for link in found:
        if link.target is not None:
            _link(destination, link, placed)
    return placed


def _link(destination: Path, link: Found, placed: Placed) -> None:
    if not stays_inside(link):
        placed.left_there.append(link.path)
        return
    target = _target(destination, link.path)
    if target.is_symlink():
        if os.readlink(target) == link.target:
            return
        target.unlink()
    elif target.exists():
        placed.newer_here.append(link.path)
        return
    target.symlink_to(link.target or "")
    placed.files += 1


def _target(destination: Path, path: str) -> Path:
    """Where it goes, with the folders above it made. Raises Refused: one of them is a link, or a folder is there."""
    *folders, name = path.split("/")
    here = destination
    for folder in ["", *folders]:
        here = here / folder
        if here.is_symlink():
            raise Refused("a link is in the way", where=str(here), next="move it away, or --to DIR")
        here.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = here / name
    if target.is_dir() and not target.is_symlink():
        raise Refused("a folder is in the way of a file", where=str(target), next="move it away, or --to DIR")
    return target


def _is_newer(here: Path, fetched: Path) -> bool:
    """A file here that was changed after the host's was, and is not the same."""
    try:
        about = here.lstat()
    except OSError:
        return False
    if here.is_symlink() or about.st_mtime_ns <= fetched.lstat().st_mtime_ns:
        return False
    return not filecmp.cmp(here, fetched, shallow=False)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
