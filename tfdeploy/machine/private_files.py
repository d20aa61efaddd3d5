"""Create files and folders that only this user can read or change."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Create the folder and its missing parents, with mode 0700. Raises OSError."""
    if folder.is_dir():
        return
    make_private_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    # Another user may have created the folder since the call of is_dir().
    if folder.lstat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "another user has created this folder", str(folder))


def write_private_file(path: Path, text: str) -> None:
    """Write the text to a new file, mode 0600, that replaces `path` atomically. Raises OSError."""
    temporary = path.with_name(f".{path.name[:100]}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
