"""Write small files even if the disk is full, in space that was reserved for them. These files say
how a task ended and how the run ended.

Beside each such file is a reserve, FILE.room, which is filled with blanks. If the disk has no free
block or inode, the content is written over the blanks, and the two files swap their names; the old
file becomes the next reserve. Blanks at the end of JSON are allowed, so readers are not affected.
"""

from __future__ import annotations

import errno
import os

from tfdeploy.agent import json_text
from tfdeploy.agent.annotations import Any, Callable, Optional
from tfdeploy.agent.host import atomic

ROOM = ".room"
_OLD = ".old"
FULL = (errno.ENOSPC, errno.EDQUOT)
STATUS_BYTES = JOURNAL_BYTES = 4096
# The size in bytes of the reserve for a minder's state file: a fixed amount, and an amount for each
# task of the run.
_FIRST_BYTES, _TASK_BYTES = 8192, 640


def run_reserve_bytes(task_count: int) -> int:
    return _FIRST_BYTES + _TASK_BYTES * task_count


def create_reserve(path: str, size_bytes: int) -> None:
    """Create the file PATH.room, which reserves disk space for the file `path`. Raises OSError."""
    atomic.write_bytes(path + ROOM, b" " * size_bytes)


def write_json(path: str, obj: Any, *, durable: bool = False) -> None:
    """Write JSON as atomic.write_json does, but even if the disk is full. Each file has only one
    writer. Raises OSError if the reserve is too small."""
    content = json_text.encode(obj)
    try:
        atomic.write_bytes(path, content, durable=durable)
    except OSError as error:
        if error.errno not in FULL:
            raise
        if not _write_over_reserve(path, content, durable):
            _remove_reserve(path)
            atomic.write_bytes(path, content, durable=durable)


def append_line(path: str, obj: Any, *, after_torn_line: bool = False) -> None:
    """Append a line as atomic.append_line does, if necessary in the space of the journal's reserve.
    Raises OSError."""
    _use_reserve(path, lambda: atomic.append_line(path, obj, after_torn_line=after_torn_line))


def write_and_reserve(path: str, write: Callable[[], object]) -> None:
    """Call `write`, if necessary in the space of the reserve of `path`. Then create this reserve if
    it is missing and the disk has space for it. Raises OSError if `write` does."""
    _use_reserve(path, write)
    try:
        if not os.path.exists(path + ROOM):
            create_reserve(path, JOURNAL_BYTES)
    except OSError:
        pass


def _use_reserve(path: str, write: Callable[[], object]) -> None:
    """Call `write`. If the disk is full, remove the reserve of `path` to make space, and call it
    again; this is possible only once. Raises OSError."""
    try:
        write()
    except OSError as error:
        if error.errno not in FULL or not _remove_reserve(path):
            raise
        write()


def _remove_reserve(path: str) -> bool:
    """Remove the reserve, so that one inode and its blocks become free. Return False if there was
    no reserve."""
    try:
        os.unlink(path + ROOM)
    except OSError:
        return False
    return True


def _write_over_reserve(path: str, content: bytes, durable: bool) -> bool:
    """Write the content over the reserve, then swap the names of the two files. Return False if the
    reserve is too small, or if the file system needs new blocks to overwrite a file (copy on
    write)."""
    descriptor = _open_existing_reserve(path)
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
    _swap_with_reserve(path, size)
    return True


def _open_existing_reserve(path: str) -> Optional[int]:
    try:
        # If a writer was killed in the middle of the swap, the reserve has the name FILE.old.
        if not os.path.lexists(path + ROOM):
            os.rename(path + _OLD, path + ROOM)
        return os.open(path + ROOM, os.O_WRONLY | os.O_NOFOLLOW)
    except OSError:
        return None


def _swap_with_reserve(path: str, size: int) -> None:
    """Swap the names of the file and its reserve by renaming both. Then append blanks to the new
    reserve until it has `size` bytes or its last block is full. The disk is full, so the reserve
    cannot get another block."""
    try:
        if os.path.exists(path + _OLD):
            os.unlink(path + _OLD)
        os.link(path, path + _OLD)
    # Either `path` does not exist yet, or the file system has no free inode and needs one for a
    # second name of the file.
    except OSError:
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
