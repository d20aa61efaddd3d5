"""Makes a data set what its listing says, once all its files are whole: in its folder, or beside it
while a live run reads that.

A sync that is killed here is gone on with: what is in place is seen as there, the rest is still
staged.
"""

from __future__ import annotations

import os
import shutil
import stat
from array import array

from tfdeploy.agent import listing
from tfdeploy.agent.annotations import List, Optional
from tfdeploy.agent.bitmap import is_marked, numbers_of
from tfdeploy.agent.host import removal
from tfdeploy.agent.listing import FILE, FOLDER, LINK, NOT_LINKED, Listing, Row
from tfdeploy.agent.serve.datasets.staging import Staging

_OTHERS_WRITE = 0o022


def unready(staging: Staging, wanted: Listing, lacking: bytearray) -> List[bytes]:
    """Paths that this host lacks and that are not whole in the staging folder."""
    folder, unready_paths = os.fsencode(staging.new), []
    for row in map(wanted.__getitem__, numbers_of(lacking)):
        try:
            about = os.lstat(os.path.join(folder, row.path))
            is_whole = stat.S_ISREG(about.st_mode) and (about.st_size, about.st_mtime_ns) == (
                row.size,
                row.mtime_ns,
            )
        except (FileNotFoundError, NotADirectoryError):
            is_whole = False
        if not is_whole and row.size:
            unready_paths.append(row.path)
    return unready_paths


def place(staging: Staging, wanted: Listing, lacking: bytearray) -> "array[int]":
    """In the folder of before. Returns the rows whose content is new. Raises OSError."""
    root = os.fsencode(staging.old)
    there = listing.walk(staging.old) if os.path.isdir(staging.old) else Listing()
    os.makedirs(root, mode=0o700, exist_ok=True)
    _open_folders(root, there)
    new = array("Q")
    for i, j in listing.pairs(wanted, there):
        row = wanted[i] if i is not None else None
        old = there[j] if j is not None else None
        if row is None:
            if old is not None and old.path:
                _remove(os.path.join(root, old.path))
            continue
        at = os.path.join(root, row.path)
        if old is not None and old.kind != row.kind:
            _remove(at)
            old = None
        if row.kind == FILE and i is not None and is_marked(lacking, i):
            _bring(staging, row, at)
            new.append(i)
        elif row.same_as != NOT_LINKED:
            _same(os.path.join(root, wanted.path(row.same_as)), at)
        else:
            _make(row, old, at)
    _set_attributes(root, wanted)
    return new


def place_beside(
    staging: Staging, wanted: Listing, lacking: bytearray, folder: str
) -> "array[int]":
    """In a new folder, where unchanged files are hard links to those of before. Returns the rows
    whose content is new."""
    root, old = os.fsencode(folder), os.fsencode(staging.old)
    removal.remove(folder)
    os.mkdir(root, 0o700)
    new = array("Q")
    for i, row in enumerate(wanted):
        at = os.path.join(root, row.path)
        if row.same_as != NOT_LINKED:
            _same(os.path.join(root, wanted.path(row.same_as)), at)
        elif row.kind == FILE and is_marked(lacking, i):
            if row.size:
                os.link(os.path.join(os.fsencode(staging.new), row.path), at, follow_symlinks=False)
            else:
                _empty(at)
            new.append(i)
        elif row.kind == FILE:
            _lend(os.path.join(old, row.path), at, row)
        else:
            _make(row, None, at)
    _set_attributes(root, wanted)
    return new


def _lend(old: bytes, at: bytes, row: Row) -> None:
    """A hard link to the file of before; a copy where its mode has to change, which the live run
    must not see."""
    if stat.S_IMODE(os.lstat(old).st_mode) == row.mode:
        os.link(old, at, follow_symlinks=False)
    else:
        shutil.copy2(old, at, follow_symlinks=False)


def _open_folders(root: bytes, there: Listing) -> None:
    """Folders that their owner may not write in are made writable until the end."""
    for row in there:
        if row.kind == FOLDER and row.mode & 0o700 != 0o700:
            os.chmod(os.path.join(root, row.path), row.mode | 0o700)


def _bring(staging: Staging, row: Row, at: bytes) -> None:
    if not row.size:
        _remove(at)
        _empty(at)
        return
    os.replace(os.path.join(os.fsencode(staging.new), row.path), at)


def _empty(at: bytes) -> None:
    os.close(
        os.open(at, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    )


def _same(first: bytes, at: bytes) -> None:
    """A hard link to `first`."""
    try:
        if os.path.samestat(os.lstat(first), os.lstat(at)):
            return
        _remove(at)
    except FileNotFoundError:
        pass
    os.link(first, at, follow_symlinks=False)


def _make(row: Row, old: Optional[Row], at: bytes) -> None:
    """A folder or link that is missing or other; a file that is right stays."""
    if row.kind == FOLDER and old is None and row.path:
        os.mkdir(at, 0o700)
    elif row.kind == LINK and (old is None or old.target != row.target):
        _remove(at)
        os.symlink(row.target, at)


def _remove(at: bytes) -> None:
    try:
        file_stat = os.lstat(at)
    except (FileNotFoundError, NotADirectoryError):
        return  # with the folder that held it
    if stat.S_ISDIR(file_stat.st_mode):
        shutil.rmtree(at)
    else:
        os.unlink(at)


def _set_attributes(root: bytes, wanted: Listing) -> None:
    """Modes and times, of folders last and from the innermost: what is made in them changes their
    times."""
    for index in range(len(wanted) - 1, -1, -1):
        row = wanted[index]
        if row.same_as != NOT_LINKED:
            continue
        at = os.path.join(root, row.path) if row.path else root
        mode = row.mode if row.path else row.mode & ~_OTHERS_WRITE | 0o700
        file_stat = os.lstat(at)
        if row.kind != LINK and stat.S_IMODE(file_stat.st_mode) != mode:
            os.chmod(at, mode)
        if file_stat.st_mtime_ns != row.mtime_ns:
            os.utime(at, ns=(file_stat.st_atime_ns, row.mtime_ns), follow_symlinks=False)
