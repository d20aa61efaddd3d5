"""Remove files and folders: measure their size on the disk, rename them in one step, then delete
them.

Links are not followed. Other users' files and mounted file systems are not removed.
"""

from __future__ import annotations

import errno
import os
import stat

from tfdeploy.agent.annotations import Dict, List, Optional, Tuple
from tfdeploy.agent.host.mounts import read_mounts

GONE = ".gone-"  # a prefix that no run, release, data set or job has


def usage(path: str) -> int:
    """Return the bytes that the removal of `path` frees. A file that also has a name elsewhere
    counts 0.

    Raises OSError: EPERM if it contains another user's file, EXDEV if something is mounted in it,
    ENOENT if it does not exist.
    """
    top, below = os.lstat(path), os.path.realpath(path) + "/"
    for row in read_mounts():
        if row[1].startswith(below):
            raise OSError(errno.EXDEV, "something is mounted there", row[1])
    total, todo = 0, [(path, top)]
    names: Dict[Tuple[int, int], List[int]] = {}
    while todo:
        entry_path, about = todo.pop()
        if about.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, "another user's file lies there", entry_path)
        if about.st_dev != top.st_dev:  # an automount, or a subvolume
            raise OSError(errno.EXDEV, "another file system begins there", entry_path)
        if stat.S_ISDIR(about.st_mode):
            total += about.st_blocks * 512
            todo += _children(entry_path, about)
        elif about.st_nlink < 2:
            total += about.st_blocks * 512
        else:
            seen = names.setdefault(
                (about.st_dev, about.st_ino), [0, about.st_nlink, about.st_blocks * 512]
            )
            seen[0] += 1
    return total + sum(size for count, links, size in names.values() if count >= links)


def _children(folder: str, about: os.stat_result) -> List[Tuple[str, os.stat_result]]:
    """Return (path, status) of the folder's entries. If the owner may not enter the folder, its
    mode is changed first, because a program may have closed it."""
    if about.st_mode & stat.S_IRWXU != stat.S_IRWXU and about.st_uid == os.geteuid():
        os.chmod(folder, stat.S_IMODE(about.st_mode) | stat.S_IRWXU)
    children = []
    for name in os.listdir(folder):
        try:
            children.append((os.path.join(folder, name), os.lstat(os.path.join(folder, name))))
        except FileNotFoundError:
            pass  # removed meanwhile
    return children


def set_aside(path: str, folder: str = "") -> Optional[str]:
    """Rename `path` to a hidden name beside it or in `folder`, so that an interrupted removal
    leaves nothing that looks complete. Return the new path; None: `path` no longer exists, for
    example because another host that shares the workdir removed it. Raises OSError."""
    name = "%s%s-%s" % (GONE, os.path.basename(path).lstrip(".")[:100], os.urandom(6).hex())
    aside = os.path.join(folder or os.path.dirname(path), name)
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return None
    return aside


def remove(path: str) -> bool:
    """Remove as much as possible, including folders that their owner may not write to. Return True
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
            _open_folders(path)
            shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def _open_folders(top: str) -> None:
    """Give the owner all rights on each folder below `top`, because an ordinary user cannot remove
    entries from a folder of mode 0500."""
    todo = [top]
    while todo:
        folder = todo.pop()
        try:
            todo += [
                path
                for path, about in _children(folder, os.lstat(folder))
                if stat.S_ISDIR(about.st_mode)
            ]
        except OSError:
            continue  # the folder belongs to another user
