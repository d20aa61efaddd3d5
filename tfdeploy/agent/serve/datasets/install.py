"""Installs a new version of a data set once all its files are complete. The new version replaces
the content of the data set's folder. If a live run reads that folder, the new version is built
beside it.

An interrupted installation is resumed: files that are already in the folder count as present, and
the others are still in the staging folder.
"""

from __future__ import annotations

import os
import shutil
import stat
from array import array

from tfdeploy.agent import listing
from tfdeploy.agent.annotations import List, Optional
from tfdeploy.agent.bitmap import is_marked, marked_numbers
from tfdeploy.agent.host import removal
from tfdeploy.agent.host.atomic import create_empty
from tfdeploy.agent.listing import FILE, FOLDER, LINK, NOT_LINKED, Listing, Row
from tfdeploy.agent.serve.datasets.staging import Staging

_OTHERS_WRITE = 0o022


def list_unstaged_files(
    staging: Staging, wanted: Listing, lacking_bitmap: bytearray
) -> List[bytes]:
    """Return the paths of the files that this host lacks and that are not complete in the staging
    folder."""
    folder, incomplete = os.fsencode(staging.new_folder), []
    for row in map(wanted.__getitem__, marked_numbers(lacking_bitmap)):
        try:
            status = os.lstat(os.path.join(folder, row.path))
            size_and_time = status.st_size, status.st_mtime_ns
            is_complete = stat.S_ISREG(status.st_mode) and size_and_time == (row.size, row.mtime_ns)
        except (FileNotFoundError, NotADirectoryError):
            is_complete = False
        if row.size and not is_complete:
            incomplete.append(row.path)
    return incomplete


def update_old_folder(staging: Staging, wanted: Listing, lacking_bitmap: bytearray) -> "array[int]":
    """Turn the folder with the old version into the new version. Return the numbers of those rows
    of the listing whose files are new. Raises OSError."""
    root = os.fsencode(staging.old_folder)
    current = listing.walk(staging.old_folder) if os.path.isdir(staging.old_folder) else Listing()
    os.makedirs(root, mode=0o700, exist_ok=True)
    _make_folders_writable(root, current)
    new = array("Q")
    for i, j in listing.match_rows(wanted, current):
        old = current[j] if j is not None else None
        if i is None:
            if old is not None and old.path:
                _remove_if_exists(os.path.join(root, old.path))
            continue
        row = wanted[i]
        path = os.path.join(root, row.path)
        if old is not None and old.kind != row.kind:
            _remove_if_exists(path)
            old = None
        if row.kind == FILE and is_marked(lacking_bitmap, i):
            _move_staged_file(staging, row, path)
            new.append(i)
        elif row.same_as != NOT_LINKED:
            _ensure_hard_link(os.path.join(root, wanted.path(row.same_as)), path)
        else:
            _make_folder_or_link(row, old, path)
    _set_attributes(root, wanted)
    return new


def build_new_folder(
    staging: Staging, wanted: Listing, lacking_bitmap: bytearray, folder: str
) -> "array[int]":
    """Build the new version in a new folder, with hard links to unchanged files of the old version.
    Return the numbers of those rows of the listing whose files are new."""
    root, old = os.fsencode(folder), os.fsencode(staging.old_folder)
    removal.remove(folder)
    os.mkdir(root, 0o700)
    new = array("Q")
    for i, row in enumerate(wanted):
        path = os.path.join(root, row.path)
        if row.same_as != NOT_LINKED:
            _ensure_hard_link(os.path.join(root, wanted.path(row.same_as)), path)
        elif row.kind == FILE and is_marked(lacking_bitmap, i):
            if row.size:
                os.link(
                    os.path.join(os.fsencode(staging.new_folder), row.path),
                    path,
                    follow_symlinks=False,
                )
            else:
                create_empty(path)
            new.append(i)
        elif row.kind == FILE:
            _link_or_copy(os.path.join(old, row.path), path, row)
        else:
            _make_folder_or_link(row, None, path)
    _set_attributes(root, wanted)
    return new


def _link_or_copy(old: bytes, path: bytes, row: Row) -> None:
    """Make a hard link to the old file. If the file's mode has to change, copy the file instead, so
    that a live run does not see the change."""
    if stat.S_IMODE(os.lstat(old).st_mode) == row.mode:
        os.link(old, path, follow_symlinks=False)
    else:
        shutil.copy2(old, path, follow_symlinks=False)


def _make_folders_writable(root: bytes, current: Listing) -> None:
    """Let the owner write to folders that are read-only. `_set_attributes` sets their final modes
    at the end."""
    for row in current:
        if row.kind == FOLDER and row.mode & 0o700 != 0o700:
            os.chmod(os.path.join(root, row.path), row.mode | 0o700)


def _move_staged_file(staging: Staging, row: Row, path: bytes) -> None:
    if row.size:
        os.replace(os.path.join(os.fsencode(staging.new_folder), row.path), path)
    else:
        _remove_if_exists(path)
        create_empty(path)


def _ensure_hard_link(original: bytes, path: bytes) -> None:
    """Make `path` a hard link to `original`, unless it already is one."""
    try:
        if os.path.samestat(os.lstat(original), os.lstat(path)):
            return
        _remove_if_exists(path)
    except FileNotFoundError:
        pass
    os.link(original, path, follow_symlinks=False)


def _make_folder_or_link(row: Row, old: Optional[Row], path: bytes) -> None:
    """Make the folder or link that the row describes, if it is missing or differs. A row that
    describes a file is ignored."""
    if row.kind == FOLDER and old is None and row.path:
        os.mkdir(path, 0o700)
    elif row.kind == LINK and (old is None or old.target != row.target):
        _remove_if_exists(path)
        os.symlink(row.target, path)


def _remove_if_exists(path: bytes) -> None:
    try:
        file_stat = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return  # the entry was removed together with its folder
    if stat.S_ISDIR(file_stat.st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _set_attributes(root: bytes, wanted: Listing) -> None:
    """Set modes and times. A folder is handled after its content, because a change of the content
    changes the folder's time."""
    for index in range(len(wanted) - 1, -1, -1):
        row = wanted[index]
        if row.same_as != NOT_LINKED:
            continue
        path = os.path.join(root, row.path) if row.path else root
        mode = row.mode if row.path else row.mode & ~_OTHERS_WRITE | 0o700
        file_stat = os.lstat(path)
        if row.kind != LINK and stat.S_IMODE(file_stat.st_mode) != mode:
            os.chmod(path, mode)
        if file_stat.st_mtime_ns != row.mtime_ns:
            os.utime(path, ns=(file_stat.st_atime_ns, row.mtime_ns), follow_symlinks=False)
