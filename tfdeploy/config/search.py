"""Find the job file and `inventories/` if no flag names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tfdeploy.machine.folders import home_folder
from tfdeploy.machine.ownership import is_writable_by_others


class FoundFile(NamedTuple):
    """A job file or inventory. `named`: a flag, its variable, or a key of the job file names it;
    else it was found by a search.

    `unused`: the file (or the folder of several) of the project over which this one takes
    precedence.
    """

    path: Path
    named: bool
    unused: Path | None = None


class Search(NamedTuple):
    """The folders to search, the current one first. `border`: why the search ends at the last
    one."""

    folders: tuple[Path, ...]
    border: str

    @staticmethod
    def upwards(cwd: Path) -> Search:
        """Return the folders from `cwd` up to the top of a git checkout, the home folder, or the
        top of a file system.

        The search ends below a folder in which other users may make files, such as /tmp.
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
    """Return why the search ends at `folder`; "" if it goes on to the folder above."""
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
