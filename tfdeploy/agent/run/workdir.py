"""Make the working directory of a run (cwd/): a private copy of the code, with links to the keep
folders and data sets.

The copy is made under a temporary name and then renamed, because hosts that share a workdir may
make it at the same time. The release from which it is copied is never written to.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Callable, Dict, List
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.ownership import check_made_by_us
from tfdeploy.agent.run.folder import RunPaths

FICLONE = 0x40049409  # ioctl by which a copy shares the blocks of the original (reflink)


def make_cwd(
    paths: RunPaths,
    release: str,
    keep: List[str],
    data_set_by_link: Dict[str, str],
    raise_if_unwanted: Callable[[], None],
) -> None:
    """Make the run's working directory, unless it exists. `raise_if_unwanted`: is called before
    each file is copied, and raises an error if the directory is no longer needed. This error is
    passed on to the caller. Raises OSError."""
    if os.path.isdir(paths.cwd):
        return
    temporary = os.path.join(paths.run_dir, ".cwd.%s.%s" % (paths.host, os.urandom(4).hex()))
    try:
        _copy_tree(
            layout.release_dir(paths.workdir, paths.job, release), temporary, raise_if_unwanted
        )
        for path in keep:
            target = layout.keep_dir(paths.workdir, paths.job, path)
            # The mode of the keep folder is not checked. A program may have made the folder
            # writable for others, but they cannot reach it, because the folders above it are
            # private.
            if os.path.lexists(target):
                check_made_by_us(target, paths.workdir)
            make_private_folder(target)
            _replace_by_link(temporary, path, target, fill_target=True)
        for path, name in data_set_by_link.items():
            _replace_by_link(
                temporary,
                path,
                _data_link_target(layout.data_dir(paths.workdir, paths.job, name), path),
            )
        os.rename(temporary, paths.cwd)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or not os.path.isdir(paths.cwd):
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _data_link_target(folder: str, path: str) -> str:
    """Return the path to which a link to a data set points. This is the folder of the data set. If
    that folder contains a single file, with the same name as the link, this file is the target."""
    file = os.path.join(folder, os.path.basename(path))
    return (
        file if os.path.isfile(file) and os.listdir(folder) == [os.path.basename(path)] else folder
    )


def _replace_by_link(root: str, path: str, target: str, fill_target: bool = False) -> None:
    """Replace `path` below `root` by a link to the folder or file `target`. With `fill_target`, if
    the folder `target` is empty, the files that are at `path` are moved into it first."""
    link = os.path.join(root, path)
    make_private_folder(os.path.dirname(link))
    if os.path.isdir(link) and not os.path.islink(link):
        if fill_target and not os.listdir(target):
            for name in os.listdir(link):
                _move(os.path.join(link, name), os.path.join(target, name))
        shutil.rmtree(link)
    elif os.path.lexists(link):
        os.unlink(link)
    os.symlink(target, link)


def _move(source: str, target: str) -> None:
    try:
        shutil.move(source, target)
    except shutil.Error as error:
        raise OSError(errno.EEXIST, str(error), target) from error


def _copy_tree(source: str, target: str, raise_if_unwanted: Callable[[], None]) -> None:
    os.mkdir(target, 0o700)
    clone = True
    with os.scandir(source) as entries:
        for entry in entries:
            raise_if_unwanted()
            copy = os.path.join(target, entry.name)
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), copy)
            elif entry.is_dir():
                _copy_tree(entry.path, copy, raise_if_unwanted)
            else:
                clone = _copy_file(entry.path, copy, clone)


def _copy_file(source: str, target: str, try_reflink: bool) -> bool:
    """Copy the content, time and executable bit of a file. `try_reflink`: first try to make a copy
    that shares the blocks of the original on the disk (a reflink). Return whether the next file
    should be tried in this way too: False once the file system has refused."""
    with open(source, "rb") as old, open(target, "xb") as new:
        about = os.fstat(old.fileno())
        if try_reflink:
            try:
                fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                try_reflink = False
        if not try_reflink:
            shutil.copyfileobj(old, new, 1 << 20)
    os.chmod(target, 0o700 if about.st_mode & stat.S_IXUSR else 0o600)
    os.utime(target, ns=(about.st_mtime_ns, about.st_mtime_ns))
    return try_reflink
