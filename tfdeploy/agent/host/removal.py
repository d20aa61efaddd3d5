"""Remove files and folders. First their size on the disk is measured, then they are renamed in one
step, then they are deleted.

Links are not followed. Files of other users and mounted file systems are not removed.
"""

from __future__ import annotations

import errno
import os
import stat

from tfdeploy.agent.annotations import Dict, List, Optional, Tuple
from tfdeploy.agent.host.mounts import read_mounts

GONE = ".gone-"  # a prefix that no name of a run, release, data set or job has


def is_own_or_root(path: str) -> bool:
    """Return whether the path belongs to this user or root, and is no link."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid in (0, os.geteuid()) and not stat.S_ISLNK(status.st_mode)


def bytes_freed_by_removal(path: str) -> int:
    """Return how many bytes become free if `path` is removed. A file that also has a name outside
    `path` (a hard link) counts as 0 bytes.

    Raises OSError. EPERM: `path` contains a file of another user. EXDEV: a file system is mounted
    in `path`. ENOENT: `path` does not exist.
    """
    top, below = os.lstat(path), os.path.realpath(path) + "/"
    for row in read_mounts():
        if row[1].startswith(below):
            raise OSError(errno.EXDEV, "a file system is mounted on this path", row[1])
    total, todo = 0, [(path, top)]
    names: Dict[Tuple[int, int], List[int]] = {}
    while todo:
        entry_path, about = todo.pop()
        if about.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, "this path belongs to another user", entry_path)
        if about.st_dev != top.st_dev:  # another file system, such as an automount or a subvolume
            raise OSError(errno.EXDEV, "another file system begins at this path", entry_path)
        if stat.S_ISDIR(about.st_mode):
            total += about.st_blocks * 512
            todo += _list_children_even_if_locked(entry_path, about)
        elif about.st_nlink < 2:
            total += about.st_blocks * 512
        else:
            counts = names.setdefault(
                (about.st_dev, about.st_ino), [0, about.st_nlink, about.st_blocks * 512]
            )
            counts[0] += 1
    return total + sum(size for count, links, size in names.values() if count >= links)


def _list_children_even_if_locked(
    folder: str, folder_stat: os.stat_result
) -> List[Tuple[str, os.stat_result]]:
    """Return (path, status) of each entry of the folder. A program may have changed the folder's
    mode so that its owner cannot enter it. In that case the mode is changed first."""
    if folder_stat.st_mode & stat.S_IRWXU != stat.S_IRWXU and folder_stat.st_uid == os.geteuid():
        os.chmod(folder, stat.S_IMODE(folder_stat.st_mode) | stat.S_IRWXU)
    children = []
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            children.append((path, os.lstat(path)))
        except FileNotFoundError:
            pass  # the entry was removed after the folder was listed
    return children


def rename_to_hidden(path: str, folder: str = "") -> Optional[str]:
    """Rename `path` to a hidden name, in the same folder or in `folder`, and return the new path.
    If the removal is then interrupted, no incomplete folder is left under the old name. Return None
    if `path` no longer exists, for example because another host that shares the workdir has removed
    it. Raises OSError."""
    name = "%s%s-%s" % (GONE, os.path.basename(path).lstrip(".")[:100], os.urandom(6).hex())
    aside = os.path.join(folder or os.path.dirname(path), name)
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return None
    return aside


def remove(path: str) -> bool:
    """Remove as much as possible, even from folders that their owner may not write to. Return True
    if nothing is left."""
    if not os.path.isdir(path) or os.path.islink(path):
        try:
            os.unlink(path)
        except OSError:
            pass
    else:
        import shutil

        shutil.rmtree(path, ignore_errors=True)
        if os.path.lexists(path):
            _make_folders_writable(path)
            shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def _make_folders_writable(top: str) -> None:
    """Give the owner all rights on each folder below `top`, because an ordinary user cannot remove
    entries from a folder with mode 0500."""
    todo = [top]
    while todo:
        folder = todo.pop()
        try:
            todo += [
                path
                for path, about in _list_children_even_if_locked(folder, os.lstat(folder))
                if stat.S_ISDIR(about.st_mode)
            ]
        except OSError:
            continue  # the folder belongs to another user
