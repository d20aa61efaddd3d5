"""Folders that their owner alone may enter."""

from __future__ import annotations

import os


def make_private(folder: str) -> None:
    """Makes the folder and those missing above it, for its owner only. Exists: success."""
    parent = os.path.dirname(folder)
    if not os.path.isdir(parent):
        make_private(parent)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
