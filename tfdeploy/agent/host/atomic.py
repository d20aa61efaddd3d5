"""Write files that other processes read. A file is written under a temporary name and then renamed,
so that a reader never sees a partial file.

This module also appends to journals, one line per write. All files have mode 0600.
"""

from __future__ import annotations

import errno
import os

from tfdeploy.agent import json_text
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, List, Optional, Union

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Unchecked


def write_bytes(path: str, content: bytes, *, durable: bool = False) -> None:
    """Replace the whole content of `path`. If that fails or is interrupted, the temporary file is
    removed. Raises OSError.

    `durable`: call fsync before the rename, which waits for the disk. Without fsync, the file may
    be empty after a power cut, for example on XFS.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, ".%s.%s.tmp" % (name[:200], os.urandom(6).hex()))
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        try:
            write_all(fd, content)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except BaseException as error:
        remove_file(temporary, if_possible=True)
        if isinstance(error, OSError):
            error.filename = path
        raise


def create_empty(path: Union[str, bytes]) -> None:
    """Create an empty file. Raises OSError, also if the path exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    os.close(os.open(path, flags, 0o600))


def remove_file(path: str, *, if_possible: bool = False) -> None:
    """Remove the file if it exists. Raises OSError, unless `if_possible` is given."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:
        if not if_possible:
            raise


def remove_temporaries(path: str) -> None:
    """Remove the temporary files of a process that was killed while it wrote `path`. Only the
    process that is now responsible for writing `path` may call this."""
    folder, name = os.path.split(path)
    try:
        for each in os.listdir(folder):
            if each.startswith(".%s." % name) and each.endswith(".tmp"):
                os.unlink(os.path.join(folder, each))
    except OSError:
        pass  # the folder does not exist or has become read-only


def write_all(fd: int, content: Union[bytes, memoryview]) -> None:
    """Write all bytes, in as many calls as necessary. Raises OSError."""
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def write_json(path: str, obj: Any, *, durable: bool = False) -> None:
    """Write `obj` as JSON in ASCII. Raises OSError."""
    write_bytes(path, json_text.encode(obj), durable=durable)


def list_names(folder: str) -> List[str]:
    """Return the sorted names in a folder. The list is empty if the folder is missing, is no folder
    or cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def read_start(path: str, most_bytes: int) -> bytes:
    """Return the first bytes of a file, at most `most_bytes`. Return b"" if the file is missing or
    cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(most_bytes)
    except OSError:
        return b""


def read_text(path: str) -> str:
    """Return the text of a small file, without blanks at its start and end. Only the first MiB is
    read. Return "" if the file is missing or cannot be read."""
    return read_start(path, 1 << 20).decode("utf-8", "replace").strip()


def read_end(path: str, most_bytes: int) -> bytes:
    """Return the last bytes of a file, at most `most_bytes`. Return b"" if the file is missing or
    cannot be read."""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - most_bytes))
            return stream.read(most_bytes)
    except OSError:
        return b""


def read_json(path: str) -> Optional[Unchecked]:
    """Return the JSON object in `path`. Return None if the file does not exist or does not contain
    an object."""
    try:
        with open(path, "rb") as stream:
            obj = json_text.loads(stream.read())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
        return None
    return obj if isinstance(obj, dict) else None


def append_line(path: str, obj: Any, *, after_torn_line: bool = False) -> None:
    """Append `obj` as one line of JSON. The line is appended completely or not at all. Each file
    has only one writer. `after_torn_line`: True if the file ends with an incomplete line; a newline
    is then written first. Raises OSError."""
    line = b"\n" * after_torn_line + json_text.encode(obj) + b"\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        before = os.fstat(fd).st_size
        if os.write(fd, line) < len(line):
            os.ftruncate(fd, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(fd)
