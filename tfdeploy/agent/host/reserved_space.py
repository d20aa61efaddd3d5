"""Write small files even on a full disk, from space that was reserved for them: how a task and the
run ended.

Each such file has a reserve of blanks beside it, FILE.room. If no block or inode is free, the
content overwrites the blanks, the two files swap names, and the old file is the next reserve. JSON
allows blanks at its end, so readers are not affected.
"""

from __future__ import annotations

import errno
import os

from tfdeploy.agent import json_text
from tfdeploy.agent.annotations import Any, Optional
from tfdeploy.agent.host import atomic

ROOM = ".room"
_OLD = ".old"
FULL = (errno.ENOSPC, errno.EDQUOT)
STATUS_BYTES = JOURNAL_BYTES = 4096
# The size of a minder's state: for the run, and for each of its tasks.
_FIRST_BYTES, _TASK_BYTES = 8192, 640


def run_bytes(tasks: int) -> int:
    return _FIRST_BYTES + _TASK_BYTES * tasks


def set_aside(path: str, size_bytes: int) -> None:
    """Create the reserve of the file `path`. Raises OSError."""
    atomic.write_bytes(path + ROOM, b" " * size_bytes)


def write_json(path: str, obj: Any, *, durable: bool = False) -> None:
    """Write JSON as atomic.write_json does, even on a full disk. Each file has one writer. Raises
    OSError if the reserve is too small."""
    content = json_text.dumps(obj).encode("ascii")
    try:
        atomic.write_bytes(path, content, durable=durable)
    except OSError as error:
        if error.errno not in FULL:
            raise
        if not _write_over(path, content, durable):
            _give_up(path)
            atomic.write_bytes(path, content, durable=durable)


def append_line(path: str, obj: Any) -> None:
    """Append a line as atomic.append_line does. On a full disk the journal's reserve is removed,
    once. Raises OSError."""
    try:
        atomic.append_line(path, obj)
    except OSError as error:
        if error.errno not in FULL or not _give_up(path):
            raise
        atomic.append_line(path, obj)


def _give_up(path: str) -> bool:
    """Remove the reserve, which frees a block and an inode. Return False if there was none."""
    try:
        os.unlink(path + ROOM)
    except OSError:
        return False
    return True


def _write_over(path: str, content: bytes, durable: bool) -> bool:
    """Write the content over the reserve, and swap the names. Return False if the reserve is too
    small, or overwriting needs new blocks (copy on write)."""
    descriptor = _open(path)
    if descriptor is None:
        return False
    try:
        size = os.fstat(descriptor).st_size
        if size < len(content):
            return False
        atomic.write_all(descriptor, content.ljust(size))
        if durable:
            os.fsync(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    _change_places(path, size)
    return True


def _open(path: str) -> Optional[int]:
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    # The file has the name _OLD if a writer was killed during the swap.
    for name in (ROOM, _OLD):
        try:
            descriptor = os.open(path + name, flags)
        except OSError:
            continue
        if name == _OLD:
            os.rename(path + _OLD, path + ROOM)
        return descriptor
    return None


def _change_places(path: str, size: int) -> None:
    """Swap the two names, with one rename each. The new reserve is then extended with blanks, as
    far as that needs no new block."""
    try:
        if os.path.exists(path + _OLD):
            os.unlink(path + _OLD)
        os.link(path, path + _OLD)
    except OSError:  # `path` does not exist yet, or a second name needs an inode here
        os.rename(path + ROOM, path)
        return
    os.rename(path + ROOM, path)
    os.rename(path + _OLD, path + ROOM)
    try:
        with open(path + ROOM, "ab", buffering=0) as file:
            block = -file.tell() % 4096
            file.write(b" " * min(block, max(0, size - file.tell())))
    except OSError:
        pass
