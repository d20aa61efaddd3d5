"""The files of a broadcast on this host, and where they grow: those of a data set, of a release, or
of `keep`.

Of a release and of `keep` the call names each file; a release takes none that `release.begin` did
not ask for.
"""

from __future__ import annotations

import os
import stat

from tfdeploy.agent import bitmap, layout
from tfdeploy.agent.annotations import List, Sequence, Tuple
from tfdeploy.agent.broadcast.piece_files import Moved
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.ownership import check
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.serve.call import Call

_SECOND_NS = 10**9
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Place(NamedTuple):
    files: Sequence[Moved]
    old: str  # the folder with the content of before
    new: str  # the folder where new content grows
    later: List[str]  # where it may lie once it is in place


def place(call: Call) -> Place:
    """Raises VerbError not_begun, bad_listing, bad_name, bad_argument; OSError."""
    if call.args.get("keep"):
        return _of_keep(call)
    return _of_release(call) if call.args.get("release") else _of_data(call)


def _of_data(call: Call) -> Place:
    from tfdeploy.agent.serve.datasets import versions as data_versions
    from tfdeploy.agent.serve.datasets.staging import Staging

    folder = layout.data_dir(call.context.workdir, call.name("job"), call.name("name"))
    check(call.context.workdir, "%s/data/%s" % (call.name("job"), call.name("name")))
    staging = Staging(folder)
    later = [folder, data_versions.beside(folder, data_versions.NEXT)]
    return Place(staging.moved(_bitmap(call, "moved")), staging.old, staging.new, later)


def _of_release(call: Call) -> Place:
    """All of these files are received. Empty ones are made here.

    Of a file that changed in part since the newest release, only pieces that it has not at the same
    place are received.
    """
    from tfdeploy.agent.serve.release import manifest as release_manifest
    from tfdeploy.agent.serve.release.verbs import begun_of, staging_of

    folder, begun = staging_of(call), begun_of(call)
    before = release_manifest.newest(os.path.dirname(folder)) or folder
    asked = set(begun.missing)
    sizes = {entry.path: entry.size for entry in begun.entries if entry.path in asked}
    files = []
    for path, size, mtime_ns in _rows(call):
        if sizes.pop(path, None) != size:
            raise VerbError("bad_argument", "%r is no file that was asked for" % path)
        half = _half(os.path.join(folder, path), size)
        if not size:
            _make_empty(os.path.join(folder, path), mtime_ns)
        old = _about(os.path.join(before, path)) if before != folder else None
        files.append(
            Moved(os.fsencode(path), size, mtime_ns, half=half, old=old.st_size if old else 0)
        )
    final = layout.release_dir(call.context.workdir, call.name("job"), call.name("release"))
    return Place(files, before, folder, [final])


def _of_keep(call: Call) -> Place:
    """Files that lie here with the same size and time, in whole seconds, are not received."""
    from tfdeploy.agent.run.keep_folders import check_keep
    from tfdeploy.agent.run.keep_receive import incoming, inside

    keep = check_keep(call.rows("keep"))
    root = layout.keep_dir(call.context.workdir, call.name("job"), "")
    files = []
    for path, size, mtime_ns in _rows(call):
        here = _about(os.path.join(root, inside(path, keep)))
        same = here is not None and (here.st_size, here.st_mtime_ns // _SECOND_NS) == (
            size,
            mtime_ns // _SECOND_NS,
        )
        files.append(
            Moved(
                os.fsencode(path), size, mtime_ns, lacking=not same, old=here.st_size if here else 0
            )
        )
    return Place(files, root, incoming(call.context.workdir, call.name("job")), [])


def _rows(call: Call) -> List[Tuple[str, int, int]]:
    rows = []
    for row in call.rows("files"):
        kinds = [type(each) for each in row] if isinstance(row, (list, tuple)) else []
        if kinds != [str, int, int] or row[1] < 0:
            raise VerbError("bad_argument", "%.200r is not [path, bytes, mtime_ns]" % (row,))
        rows.append((row[0], row[1], row[2]))
    return rows


def _half(path: str, size: int) -> bool:
    """Whether an earlier broadcast has left some of it. Anything else is removed: it may be a file
    of an older release too."""
    try:
        file_stat = os.lstat(path)
    except FileNotFoundError:
        return False
    if size and stat.S_ISREG(file_stat.st_mode) and file_stat.st_nlink == 1:
        return True
    os.unlink(path)
    return False


def _about(path: str) -> "os.stat_result | None":
    """Of a regular file."""
    try:
        file_stat = os.lstat(path)
    except OSError:
        return None
    return file_stat if stat.S_ISREG(file_stat.st_mode) else None


def _make_empty(path: str, mtime_ns: int) -> None:
    os.close(os.open(path, _NEW, 0o600))
    os.utime(path, ns=(mtime_ns, mtime_ns))


def _bitmap(call: Call, key: str) -> bytes:
    try:
        return bitmap.unpack(call.text(key))
    except ValueError as error:
        raise VerbError("bad_argument", "%s is no bitmap" % key) from error
