"""Finds which files a broadcast sends to this host, and the folders in which they are received. In
a broadcast, hosts pass pieces of files to each other. The files are those of a data set, of a
release, or of keep folders.

For a release and for keep folders, the call names each file. For a release, only files that
`release.begin` has listed as missing are accepted.
"""

from __future__ import annotations

import os
import stat

from tfdeploy.agent import bitmap, layout
from tfdeploy.agent.annotations import List, Sequence, Tuple
from tfdeploy.agent.broadcast.piece_files import BroadcastFile
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.atomic import create_empty
from tfdeploy.agent.ownership import check_owners
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.serve.call import Call

_SECOND_NS = 10**9


class BroadcastFiles(NamedTuple):
    """The files of a broadcast. `present_folder` has the present content. In `incoming_folder`, new
    content is received. `installed_folders`: the folders into which the new content may be
    installed."""

    files: Sequence[BroadcastFile]
    present_folder: str
    incoming_folder: str
    installed_folders: List[str]


def locate_files(call: Call) -> BroadcastFiles:
    """Find the files of the broadcast that the call describes, and their folders. Raises VerbError
    not_begun, bad_listing, bad_name, bad_argument; OSError."""
    if call.args.get("keep"):
        return _locate_keep_files(call)
    return _locate_release_files(call) if call.args.get("release") else _locate_data_files(call)


def _locate_data_files(call: Call) -> BroadcastFiles:
    from tfdeploy.agent.serve.datasets import versions as data_versions
    from tfdeploy.agent.serve.datasets.files import Staging

    folder = layout.data_dir(call.workdir, call.job, call.name("name"))
    check_owners(call.workdir, "%s/data/%s" % (call.job, call.name("name")))
    staging = Staging(folder)
    later = [folder, data_versions.hidden_sibling_path(folder, data_versions.NEXT)]
    return BroadcastFiles(
        staging.list_broadcast_files(_unpack_bitmap(call, "moved")),
        staging.old_folder,
        staging.new_folder,
        later,
    )


def _locate_release_files(call: Call) -> BroadcastFiles:
    """Return the files of a release that are missing on this host. Also create each missing file
    whose size is 0.

    If the newest release has an older version of a file, only pieces that differ from the older
    version at the same offset are received.
    """
    from tfdeploy.agent.serve.release import store as release_store
    from tfdeploy.agent.serve.release.verbs import checked_staging_path, find_begun_release

    folder, begun = checked_staging_path(call), find_begun_release(call)
    before = release_store.newest_release(os.path.dirname(folder)) or folder
    missing = set(begun.missing)
    sizes = {entry.path: entry.size for entry in begun.entries if entry.path in missing}
    files = []
    for path, size, mtime_ns in _file_rows(call):
        if sizes.pop(path, None) != size:
            raise VerbError("bad_argument", "%r is not one of the missing files" % path)
        is_partial = _remove_unless_partial(os.path.join(folder, path), size)
        if not size:
            create_empty(os.path.join(folder, path))
            os.utime(os.path.join(folder, path), ns=(mtime_ns, mtime_ns))
        old = _stat_regular_file(os.path.join(before, path)) if before != folder else None
        files.append(
            BroadcastFile(
                os.fsencode(path), size, mtime_ns, partial=is_partial, old=old.st_size if old else 0
            )
        )
    final = layout.release_dir(call.workdir, call.job, call.name("release"))
    return BroadcastFiles(files, before, folder, [final])


def _locate_keep_files(call: Call) -> BroadcastFiles:
    """Return the files in `keep` folders that the call names. A file is not received again if this
    host has a file of the same size whose time, rounded down to seconds, is the same."""
    from tfdeploy.agent.run.keep_folders import check_keep_paths
    from tfdeploy.agent.run.keep_receive import check_inside_keep, incoming_folder

    keep = check_keep_paths(call.rows("keep"))
    root = layout.keep_dir(call.workdir, call.job, "")
    files = []
    for path, size, mtime_ns in _file_rows(call):
        current = _stat_regular_file(os.path.join(root, check_inside_keep(path, keep)))
        same = (
            current is not None
            and current.st_size == size
            and current.st_mtime_ns // _SECOND_NS == mtime_ns // _SECOND_NS
        )
        files.append(
            BroadcastFile(
                os.fsencode(path),
                size,
                mtime_ns,
                lacking=not same,
                old=current.st_size if current else 0,
            )
        )
    return BroadcastFiles(files, root, incoming_folder(call.workdir, call.job), [])


def _file_rows(call: Call) -> List[Tuple[str, int, int]]:
    rows = call.rows("files", str, int, int)
    if any(size < 0 for _, size, _ in rows):
        raise VerbError("bad_argument", "a file has a size below 0")
    return rows


def _remove_unless_partial(path: str, size: int) -> bool:
    """Return whether an earlier broadcast left an incomplete file at the path. Anything else at the
    path is removed; it may be a hard link to a file of an older release, which must not change."""
    try:
        file_stat = os.lstat(path)
    except FileNotFoundError:
        return False
    if size and stat.S_ISREG(file_stat.st_mode) and file_stat.st_nlink == 1:
        return True
    os.unlink(path)
    return False


def _stat_regular_file(path: str) -> "os.stat_result | None":
    """Return the stat result of the path, or None if it is not a regular file."""
    try:
        file_stat = os.lstat(path)
    except OSError:
        return None
    return file_stat if stat.S_ISREG(file_stat.st_mode) else None


def _unpack_bitmap(call: Call, key: str) -> bytes:
    try:
        return bitmap.unpack(call.text(key))
    except ValueError as error:
        raise VerbError("bad_argument", "%s is no bitmap" % key) from error
