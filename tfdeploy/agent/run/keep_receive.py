"""Receive the files of another host's keep folders. The files arrive in a separate folder and are
then moved into `keep` together. The `checkpoint` records are moved last. In these files, TensorFlow
names the newest checkpoint of a folder.

Nothing is deleted. If this host has a `checkpoint` record that the other host does not have, the
record is renamed, so that TensorFlow does not use it.
"""

from __future__ import annotations

import os
import shutil
import stat

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Any, List, Tuple
from tfdeploy.agent.errors import VerbError, is_safe_relative_path
from tfdeploy.agent.host.disk import require_space
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.run import keep_links
from tfdeploy.agent.run.keep_folders import RECORD

ASIDE = ".older"
_INCOMING = ".tfdeploy-incoming"
_SECOND_NS = 10**9


def make_incoming_folder(workdir: str, job: str, needed_bytes: int) -> str:
    """Make an empty folder for the files that will arrive, and return its path. Raises VerbError
    disk if there is no space for `needed_bytes` bytes."""
    folder = incoming_folder(workdir, job)
    shutil.rmtree(folder, ignore_errors=True)
    make_private_folder(folder)
    require_space(folder, "`keep`", needed_bytes)
    return folder


def move_received_into_keep(
    workdir: str,
    job: str,
    files: List[Tuple[str, int, int]],
    paths_to_rename: List[str],
    links: List[Tuple[str, str]],
) -> List[str]:
    """Move the received files into `keep`. If some files are incomplete, move nothing and return
    their paths. Raises VerbError in_the_way.

    `files`: (path, size, mtime_ns) of each file.
    `paths_to_rename`: existing files that are renamed first, either because TensorFlow must not use
    them or because a received file takes their place.
    `links`: (path, target) of the links to make. A link whose target leads out of the link's folder
    is not made. A file that is in the place of a link is renamed.
    """
    folder, root = incoming_folder(workdir, job), layout.keep_dir(workdir, job, "")
    for path, size, mtime_ns in files:
        if not size:  # the sender leaves out empty files, so they are made here
            _make_empty_file(os.path.join(folder, path), mtime_ns)
    missing = [
        path
        for path, size, mtime_ns in files
        if not is_complete_file(os.path.join(folder, path), size, mtime_ns)
    ]
    if missing:
        return missing
    for path in paths_to_rename:
        _check_target_free(root, path)
        if os.path.lexists(root + path):
            os.replace(root + path, root + path + ASIDE)
    for path, _, _ in sorted(files, key=lambda row: (os.path.basename(row[0]) == RECORD, row)):
        _check_target_free(root, path)
        make_private_folder(os.path.dirname(root + path))
        keep_links.move(os.path.join(folder, path), root + path)
    for path, target in links:
        if is_safe_relative_path(target):
            _make_link(root, path, target)
    shutil.rmtree(folder, ignore_errors=True)
    return []


def incoming_folder(workdir: str, job: str) -> str:
    """Return the folder in which files of another host are received."""
    return layout.keep_dir(workdir, job, _INCOMING)


def check_inside_keep(path: Any, keep: List[str]) -> str:
    """Return the path, or raise VerbError bad_name if it is not below one of the keep folders."""
    if not is_safe_relative_path(path) or not any(path.startswith(top + "/") for top in keep):
        raise VerbError("bad_name", "%r is not in a keep folder" % (path,))
    return str(path)


def _make_link(root: str, path: str, target: str) -> None:
    _check_target_free(root, path)
    make_private_folder(os.path.dirname(root + path))
    if os.path.islink(root + path):
        os.unlink(root + path)
    elif os.path.lexists(root + path):
        os.replace(root + path, root + path + ASIDE)
    os.symlink(target, root + path)


def _make_empty_file(path: str, mtime_ns: int) -> None:
    make_private_folder(os.path.dirname(path))
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    os.utime(path, ns=(mtime_ns, mtime_ns))


def is_complete_file(path: str, size_bytes: int, mtime_ns: int) -> bool:
    """Return whether there is a regular file of this size and modification time. The times are
    compared in whole seconds."""
    try:
        file_stat = os.lstat(path)
    except OSError:
        return False
    # Old versions of rsync set only the whole seconds of a file's time.
    same_time = file_stat.st_mtime_ns // _SECOND_NS == mtime_ns // _SECOND_NS
    return stat.S_ISREG(file_stat.st_mode) and file_stat.st_size == size_bytes and same_time


def _check_target_free(root: str, path: str) -> None:
    """Raise VerbError in_the_way if the path is a folder, or if one of the folders above it is a
    link."""
    steps = path.split("/")
    for end in range(1, len(steps)):
        folder = os.path.join(root, *steps[:end])
        if os.path.islink(folder):
            raise VerbError("in_the_way", "%s is a link" % folder, where=folder, advice="move_away")
    target = os.path.join(root, path)
    if os.path.isdir(target) and not os.path.islink(target):
        raise VerbError("in_the_way", "%s is a folder" % target, where=target, advice="move_away")
