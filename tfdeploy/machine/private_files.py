"""Create files and folders that only this user can read or change."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tfdeploy.agent.host import atomic


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
    atomic.write_bytes(str(path), text.encode())
