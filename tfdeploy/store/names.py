"""Remember names of hosts, roles, tasks and runs, so that the shell can complete them (Tab).

A tfdeploy command stores the names that it has read, one per line, in one file for each kind of
name and each current folder. The file's name is the kind, followed by the path of that folder with
`%` instead of `/`. The scripts in cli/completion read these files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Literal

from tfdeploy.text.allowed import is_printable_text

Kind = Literal["hosts", "roles", "tasks", "runs"]
FOLDER = "completion"
MAX_NAMES = 5_000  # the maximum number of names in one file
MAX_NAME_LENGTH = 128
MAX_FILES = 100


def store_completion_names(
    root: Path, folder: Path, kind: Kind, names: Iterable[str], *, keep_stored_names: bool = False
) -> None:
    """Store names that a command has read while it ran in `folder`.

    `root`: the state folder, below which the names are stored. `keep_stored_names`: also keep the
    names that were stored earlier; the new names come first. Names that could harm a terminal or
    look like a flag are left out. A failed write is ignored.
    """
    # Imported only here, so that commands that store no names do not load the module.
    from tfdeploy.machine.private_files import make_private_folder, write_private_file

    path = root / FOLDER / f"{kind}{str(folder).replace('/', '%')}"
    with contextlib.suppress(OSError, ValueError):
        stored = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        unique_names = dict.fromkeys([*names, *(stored.splitlines() if keep_stored_names else ())])
        text = "".join(
            f"{name}\n" for name in islice(filter(_is_safe_name, unique_names), MAX_NAMES)
        )
        if text != stored:
            make_private_folder(path.parent)
            write_private_file(path, text)
            _remove_oldest_files(path.parent)


def _is_safe_name(name: str) -> bool:
    return len(name) <= MAX_NAME_LENGTH and is_printable_text(name)


def _remove_oldest_files(folder: Path) -> None:
    """Remove all files except the MAX_FILES newest ones."""
    by_age = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in by_age[MAX_FILES:]:
        path.unlink()
