"""Files that another process reads: written to a temporary name and renamed, so that a reader never
sees half of one.

Also the journals: one line per write, appended. All files are 0600.
"""

from __future__ import annotations

import errno
import os

from tfdeploy.agent import json_text
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Optional, Union

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Unchecked


def write_bytes(path: str, content: bytes, mode: int = 0o600, *, durable: bool = False) -> None:
    """Replaces `path` as a whole. `durable`: fsync before the rename, since a power cut may leave a
    name without content (XFS); not for a caller that must not wait for a disk. Raises OSError, with
    the temporary file removed."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, ".%s.%s.tmp" % (name[:200], os.urandom(6).hex()))
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        try:
            write_all(fd, content)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError as error:
        os.unlink(temporary)
        error.filename = path
        raise


def remove_temporaries(path: str) -> None:
    """Removes temporary files of a writer of `path` that was killed as it wrote. Only for the one
    writer of `path`."""
    folder, name = os.path.split(path)
    try:
        for each in os.listdir(folder):
            if each.startswith(".%s." % name) and each.endswith(".tmp"):
                os.unlink(os.path.join(folder, each))
    except OSError:
        pass  # no folder, or one that is read-only by now


def write_all(fd: int, content: Union[bytes, memoryview]) -> None:
    """Writes all bytes, in as many writes as it takes. Raises OSError."""
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def write_json(path: str, obj: Any, *, durable: bool = False) -> None:
    """`obj` as JSON in ASCII. Raises OSError."""
    write_bytes(path, json_text.dumps(obj).encode("ascii"), durable=durable)


def read_json(path: str) -> Optional[Unchecked]:
    """The object in `path`; None when there is none, or when what is there is not one."""
    try:
        with open(path, "rb") as stream:
            obj = json_text.loads(stream.read())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
        return None
    return obj if isinstance(obj, dict) else None


def append_line(path: str, obj: Any) -> None:
    """One JSON line at the end of `path`, whole or not at all. One writer per file. Raises
    OSError."""
    line = json_text.dumps(obj).encode("ascii") + b"\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        before = os.fstat(fd).st_size
        written = os.write(fd, line)
        if written < len(line):
            os.ftruncate(fd, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(fd)
