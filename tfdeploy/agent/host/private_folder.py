"""Create folders that only their owner may enter."""

from __future__ import annotations

import os


def make_private_folder(folder: str) -> None:
    """Create the folder and its missing parents. The mode of the folder is 0700. Each process of
    the agent sets its umask to 077 when it starts, so parents get this mode too. Does nothing if
    the folder exists."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
