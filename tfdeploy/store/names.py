"""Remembers names of hosts, roles, tasks and runs, which shells offer when they complete a command.

Each file has the names of one kind that verbs last read in one folder, one name per line. Its name
is the kind and the path of the folder with `%` for `/`. Scripts in cli/completion read the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Literal

from tfdeploy.model.allowed import is_text

Kind = Literal["hosts", "roles", "tasks", "runs"]
FOLDER = "completion"
MAX_NAMES = 5_000  # in one file
MAX_NAME_LENGTH = 128
MAX_FILES = 100


def remember_names(
    root: Path, folder: Path, kind: Kind, names: Iterable[str], *, add: bool = False
) -> None:
    """Store the names that were read in `folder` below the state folder `root`.

    `add`: keep the names that are stored, after `names`. Names that could harm a terminal or look
    like a flag are left out. A failed write is ignored.
    """
    # Imported only here, so that verbs that remember nothing do not load it.
    from tfdeploy.machine.private_files import make_private_folder, write_private_file

    path = root / FOLDER / f"{kind}{str(folder).replace('/', '%')}"
    with contextlib.suppress(OSError, ValueError):
        stored = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        unique_names = dict.fromkeys([*names, *(stored.splitlines() if add else ())])
        text = "".join(f"{name}\n" for name in islice(filter(_is_plain, unique_names), MAX_NAMES))
        if text != stored:
            make_private_folder(path.parent)
            write_private_file(path, text)
            _remove_oldest(path.parent)


def _is_plain(name: str) -> bool:
    return len(name) <= MAX_NAME_LENGTH and is_text(name)


def _remove_oldest(folder: Path) -> None:
    """Remove files beyond the MAX_FILES that were written last."""
    by_age = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in by_age[MAX_FILES:]:
        path.unlink()
