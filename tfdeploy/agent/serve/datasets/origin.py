"""Reads data that is already on this host, at a path that the user named. The data is listed, and
copied into a data set of this host.

The data is read with the rights of the user who runs the agent. The files at the path are not
changed.
"""

from __future__ import annotations

import fcntl
import os
import stat

from tfdeploy.agent import listing
from tfdeploy.agent.annotations import TYPE_CHECKING, Tuple
from tfdeploy.agent.bitmap import marked_numbers
from tfdeploy.agent.broadcast.piece_files import split_at_holes, write_all
from tfdeploy.agent.call import Call, requires_job_lock
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.listing import Listing
from tfdeploy.agent.pieces import PIECE_BYTES
from tfdeploy.agent.run.workdir import FICLONE
from tfdeploy.agent.serve.datasets.files import Staging, data_folder
from tfdeploy.agent.stamp import Stamp, compute_stamp

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

BLOB_BYTES = 8 << 20


def list_source(call: Call) -> Answer:
    """List what is at a path of this host. The answer sends the list as a packed Listing
    (agent/listing.py), cut into several items.

    Args: path (absolute), brief? (send no items).

    Raises VerbError missing, unreadable (also for an entry that is no file, link or folder).
    """
    path = call.text("path")
    if call.flag("brief"):
        try:
            return {"folder": os.path.isdir(path), "stamp": compute_stamp(path)}
        except OSError as error:
            raise _unreadable_error(path, error) from error
    rows, is_folder, stamp = _list_path(path)
    packed = rows.pack()
    for start in range(0, len(packed), BLOB_BYTES):
        if call.cancelled.is_set():
            break
        call.item({"bytes": len(packed)}, packed[start : start + BLOB_BYTES])
    return {"folder": is_folder, "stamp": stamp}


def _list_path(path: str) -> Tuple[Listing, bool, str]:
    stamp = Stamp()

    def visit(name: bytes, file_stat: os.stat_result) -> None:
        stamp.add_file(name, file_stat)
        if stat.S_ISREG(file_stat.st_mode) and not os.access(os.path.join(root, name), os.R_OK):
            raise PermissionError(
                13,
                "this user has no permission to read the file",
                os.fsdecode(os.path.join(root, name)),
            )

    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
        root = os.fsencode(path if is_folder else os.path.dirname(path))
        if not is_folder and os.path.islink(path):
            raise VerbError(
                "unreadable",
                "%s is a link to a file" % path,
                where=path,
                advice="name_file",
                details={"path": os.path.realpath(path)},
            )
        rows = listing.walk(path, visit) if is_folder else listing.list_file(path, visit)
    except FileNotFoundError as error:
        raise VerbError("missing", "%s does not exist" % path, where=path) from error
    except listing.SpecialFile as error:
        what = "%s is neither a file, a link nor a folder" % error.filename
        raise VerbError("unreadable", what, where=error.filename) from error
    except OSError as error:
        raise _unreadable_error(path, error) from error
    return rows, is_folder, str(stamp)


def _unreadable_error(path: str, error: OSError) -> VerbError:
    what = "%s cannot be read: %s" % (path, error.strerror)
    return VerbError("unreadable", what, where=error.filename or path)


@requires_job_lock
def copy_source(call: Call) -> Answer:
    """Copy files from the folder `root` on this host to the staging folder of the data set. Only
    files that the data set still lacks are copied.

    Args: job, name, root.

    Raises VerbError not_begun, unreadable.
    """
    staging = Staging(data_folder(call))
    wanted, root = staging.read_listing(), os.fsencode(call.text("root"))
    for index in marked_numbers(staging.find_lacking_rows(wanted)):
        if call.cancelled.is_set():
            break
        if wanted.sizes[index]:
            _copy_file(
                root, os.fsencode(staging.new_folder), wanted[index], wanted.is_sparse(index)
            )
    return {}


def _copy_file(root: bytes, staging: bytes, row: listing.Row, sparse: bool) -> None:
    """Copy one file. The copy shares its blocks with the original if the file system supports
    that."""
    source, target = os.path.join(root, row.path), os.path.join(staging, row.path)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    try:
        source_descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        error.filename = os.fsdecode(source)
        raise _unreadable_error(error.filename, error) from error
    try:
        target_descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            _copy_content(source_descriptor, target_descriptor, row.size, sparse)
        finally:
            os.close(target_descriptor)
    finally:
        os.close(source_descriptor)
    os.utime(target, ns=(row.mtime_ns, row.mtime_ns))


def _copy_content(source: int, target: int, size: int, sparse: bool) -> None:
    os.ftruncate(target, 0)
    try:
        fcntl.ioctl(target, FICLONE, source)
        return
    except OSError:
        os.ftruncate(target, size)
    offset = 0
    while offset < size:
        content = os.pread(source, min(PIECE_BYTES, size - offset), offset)
        if not content:
            break  # the file has become shorter; the commit of the data set detects that
        for start, length in (
            split_at_holes(memoryview(content)) if sparse else ((0, len(content)),)
        ):
            write_all(target, memoryview(content)[start : start + length], offset + start)
        offset += len(content)


VERBS = {"data.look": list_source, "data.copy": copy_source}
