"""Write a page to a file, completely or not at all.

An existing file is replaced only if the operator asked to overwrite it.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from tfdeploy.errors import UsageError
from tfdeploy.machine.private_files import write_private_file


def check_page_target(target: Path, overwrite: bool) -> None:
    """Raise UsageError if the page cannot be written to `target`."""
    if target.is_dir():
        raise UsageError(
            f"{target} is a folder", where="--to", next=f"add --to {target / 'report.html'}"
        )
    if not target.parent.is_dir():
        raise UsageError(
            f"there is no folder {target.parent}",
            where="--to",
            next=f"`mkdir -p {shlex.quote(str(target.parent))}`",
        )
    if target.exists() and not overwrite:
        raise UsageError(
            f"{target} exists already",
            where="--to",
            next="add --overwrite to replace this file, or --to FILE to write another file",
        )


def write_page(target: Path, html: str, overwrite: bool) -> None:
    """Write the page with mode 0600, because it contains lines of logs.

    Raises UsageError, for example if the file has been created meanwhile and `overwrite` is false.
    """
    try:
        check_page_target(target, overwrite)
        write_private_file(target, html)
    except OSError as error:
        raise UsageError(
            f"cannot write {target}: {error.strerror}", where="--to", next="name another file"
        ) from error
