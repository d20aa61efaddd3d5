"""Finds the job file and the folder `inventories/` if no flag names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tfdeploy.machine.folders import home_folder
from tfdeploy.machine.ownership import is_writable_by_others


class FoundFile(NamedTuple):
    """A job file or inventory.

    `named_explicitly`: True if the user named the file by a flag, by the environment variable of
    the flag or in the job file; False if a search found the file.
    `unused_inventory`: an inventory of the project that is ignored because this file is used
    instead. If several inventories are ignored, `unused_inventory` is their folder.
    """

    path: Path
    named_explicitly: bool
    unused_inventory: Path | None = None


class FolderSearch(NamedTuple):
    """The folders to search for a file: the current folder, then the folders above it.

    `end_reason`: the reason why the search does not continue above the last folder.
    """

    folders: tuple[Path, ...]
    end_reason: str

    @staticmethod
    def upwards(cwd: Path) -> FolderSearch:
        """Return the folders from `cwd` upwards.

        The last folder is the top of a git checkout, the home folder, the top of a file system, or
        a folder whose parent folder is open to other users, as /tmp is.
        """
        home = os.path.realpath(home_folder(os.environ) or "/")
        folders = [cwd]
        while not (border := _why_search_ends(folders[-1], home)):
            folders.append(folders[-1].parent)
        return FolderSearch(tuple(folders), border)

    def __str__(self) -> str:
        here = str(self.folders[0])
        if len(self.folders) == 1:
            return f"{here} ({self.end_reason})"
        return f"{here} and the folders above it, up to {self.folders[-1]} ({self.end_reason})"


def _why_search_ends(folder: Path, home: str) -> str:
    """Return why the search ends at `folder`; "" if it continues with the parent folder."""
    above = folder.parent
    if os.path.lexists(folder / ".git"):
        return "the top of a git checkout"
    if str(folder) == home:
        return "your home folder"
    if above == folder:
        return "the top of the file system"
    try:
        if above.stat().st_dev != folder.stat().st_dev:
            return "the top of its file system"
    except OSError as error:
        return f"{above}: {error.strerror}"
    if is_writable_by_others(above):
        return f"others may write to {above}"
    return ""
