"""Files and folders that only this user can read or change."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Make the folder, and what is missing above it, for this user alone. Raises OSError."""
    if folder.is_dir():
        return
    make_private_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.geteuid():  # another user made it in this very moment
        raise PermissionError(errno.EPERM, "another user has made it", str(folder))


def write_private_file(path: Path, text: str) -> None:
    """Replace the file, at once, by one with this text. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
