"""Find files of this machine that are never sent: secrets, private keys and known_hosts.

A hard link to such a file counts as the file itself.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from typing import NamedTuple

Inode = tuple[int, int]  # (device, inode)


class WithheldFile(NamedTuple):
    """A file that must not be sent.

    `description`: used in messages, such as "the secret TOKEN". `is_secret`: False for a
    known_hosts file, which anybody may read.
    """

    description: str
    is_secret: bool = True


class WithheldFiles(NamedTuple):
    """The files that must not be sent.

    `by_path`: {absolute path without links: file}. `has_hard_links`: True if some secret file has
    several names (hard links).
    """

    by_path: Mapping[str, WithheldFile]
    by_inode: Mapping[Inode, WithheldFile]
    has_hard_links: bool = False

    @classmethod
    def from_paths(cls, files: Mapping[str, WithheldFile]) -> WithheldFiles:
        """Return the WithheldFiles for these paths.

        Each path may be a link, and the file may be missing.
        """
        by_path: dict[str, WithheldFile] = {}
        by_inode: dict[Inode, WithheldFile] = {}
        has_hard_links = False
        for path, file in files.items():
            folder, name = os.path.split(os.path.abspath(path))
            for real_path in (os.path.realpath(path), os.path.join(os.path.realpath(folder), name)):
                by_path.setdefault(real_path, file)
            try:
                file_stat = os.stat(path)
            except (OSError, ValueError):
                continue
            if stat.S_ISREG(file_stat.st_mode):
                by_inode.setdefault((file_stat.st_dev, file_stat.st_ino), file)
                has_hard_links |= file.is_secret and file_stat.st_nlink > 1
        return cls(by_path, by_inode, has_hard_links)

    def find(self, path: str) -> WithheldFile | None:
        """Return the withheld file to which the path leads, else None."""
        try:
            file_stat = os.stat(path)
        except (OSError, ValueError):
            return None
        return self.by_inode.get((file_stat.st_dev, file_stat.st_ino)) or self.by_path.get(
            os.path.realpath(path)
        )

    def files_below(self, top: str) -> dict[str, WithheldFile]:
        """Return {path relative to `top`: file} of the withheld files below the folder `top`.

        `top`: an absolute path without links.
        """
        above = top.rstrip("/") + "/"
        return {
            path[len(above) :]: file
            for path, file in self.by_path.items()
            if path.startswith(above)
        }

    def make_finder(self, top: str) -> Callable[[str, os.stat_result], WithheldFile | None]:
        """Return a function that tells whether a path below `top` is a withheld file.

        The function's parameters are a path relative to `top` and its lstat. It returns the
        withheld file, or None.
        """
        below, by_inode = self.files_below(top), self.by_inode

        def find(path: str, file_stat: os.stat_result) -> WithheldFile | None:
            return by_inode.get((file_stat.st_dev, file_stat.st_ino)) or below.get(path)

        return find


NONE = WithheldFiles({}, {})
