"""Where the job file and `inventories/` are looked for if no flag names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tfdeploy.machine.folders import home_folder
from tfdeploy.machine.ownership import is_writable_by_others


class FoundFile(NamedTuple):
    """A file that a verb reads. `named`: by a flag, its variable, or a key of a file that is itself read.

    `unused`: the project's own file, or the folder of several, that counts for nothing because of this one.
    """

    path: Path
    named: bool
    unused: Path | None = None


class Search(NamedTuple):
    """The folders to look in, the current one first. `border`: why no folder above the last one counts."""

    folders: tuple[Path, ...]
    border: str

    @staticmethod
    def upwards(cwd: Path) -> Search:
        """From `cwd` up to the top of a git checkout, the home folder, or the border of a file system.

        A folder in which other users may make files, such as /tmp, is not looked in on the way up.
        """
        home = os.path.realpath(home_folder(os.environ) or "/")
        folders = [cwd]
        while not (border := _border(folders[-1], home)):
            folders.append(folders[-1].parent)
        return Search(tuple(folders), border)

    def __str__(self) -> str:
        here = str(self.folders[0])
        if len(self.folders) == 1:
            return f"{here} ({self.border})"
        return f"{here} and the folders above it, up to {self.folders[-1]} ({self.border})"


def _border(folder: Path, home: str) -> str:
    """Return why the folder above `folder` does not count; "" if it does."""
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
