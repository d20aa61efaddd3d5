"""`release.put`: writes small files of a release that came through the channel into its staging folder.

They are checked as what rsync brings: release.commit reads all of them again.
"""

from __future__ import annotations

import os
import zlib

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Tuple
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.atomic import write_all
from tfdeploy.agent.serve.call import Call, fenced
from tfdeploy.agent.serve.release import staging_of

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@fenced
def put(call: Call) -> Answer:
    """Store small files of a release; large ones come by rsync.

    Args: job, release, staging, files [[path, bytes, mtime_ns], ...]; blob: zlib of their contents,
    one after the other.

    Raises VerbError bad_manifest.
    """
    folder = staging_of(call)
    files = [_checked(row) for row in call.rows("files")]
    contents = memoryview(_unpacked(call.blob, sum(size for _, size, _ in files)))
    for parent in {path.rpartition("/")[0] for path, _, _ in files}:
        _check_folder(folder, parent)
    at = 0
    for path, size, mtime_ns in files:
        _write(folder + "/" + path, contents[at : at + size], mtime_ns)
        at += size
    return {}


def _checked(row: Any) -> Tuple[str, int, int]:
    path, size, mtime_ns = row
    if not isinstance(size, int) or size < 0 or any(step in ("", ".", "..") for step in path.split("/")):
        raise VerbError("bad_manifest", "the path %r leads out of the release" % (path,))
    return path, size, mtime_ns


def _unpacked(blob: bytes, size: int) -> bytes:
    try:
        contents = zlib.decompressobj().decompress(blob, size + 1)
    except zlib.error as error:
        raise VerbError("bad_manifest", "the files cannot be unpacked: %s" % error) from error
    if len(contents) != size:
        raise VerbError("bad_manifest", "the files do not have the lengths that were announced")
    return contents


def _check_folder(folder: str, path: str) -> None:
    inside = os.path.join(folder, path) if path else folder
    if os.path.realpath(inside) != os.path.realpath(folder) + inside[len(folder) :]:
        raise VerbError("bad_manifest", "the path %r leads through a link" % path)


def _write(name: str, content: memoryview, mtime_ns: int) -> None:
    """Always makes a new file: one of that name may be a hard link into an older release."""
    try:
        descriptor = os.open(name, _FLAGS, 0o600)
    except FileExistsError:
        os.unlink(name)
        descriptor = os.open(name, _FLAGS, 0o600)
    try:
        write_all(descriptor, content)
        os.utime(descriptor, ns=(mtime_ns, mtime_ns))
    except OSError as error:
        error.filename = name
        raise
    finally:
        os.close(descriptor)


VERBS = {"release.put": put}
