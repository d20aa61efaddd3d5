"""Create folders that only their owner may enter."""

from __future__ import annotations

import os


def make_private_folder(folder: str) -> None:
    """Create the folder and its missing parents with mode 0700. Does nothing if the folder
    exists."""
    parent = os.path.dirname(folder)
    if not os.path.isdir(parent):
        make_private_folder(parent)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
