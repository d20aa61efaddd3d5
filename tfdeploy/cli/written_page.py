"""A page that is written to a file: whole or not at all, and over an existing file only where that
was asked for."""

from __future__ import annotations

from pathlib import Path

from tfdeploy.errors import UsageError
from tfdeploy.machine.private_files import write_private_file


def check_page_target(target: Path, overwrite: bool) -> None:
    """Raises UsageError where it cannot be written."""
    if target.is_dir():
        raise UsageError(
            f"{target} is a folder", where="--to", next=f"--to {target / 'report.html'}"
        )
    if not target.parent.is_dir():
        raise UsageError(
            f"there is no folder {target.parent}", where="--to", next=f"mkdir -p {target.parent}"
        )
    if target.exists() and not overwrite:
        raise UsageError(
            f"{target} is there already",
            where="--to",
            next="--overwrite replaces it, --to FILE writes another",
        )


def write_page(target: Path, html: str, overwrite: bool) -> None:
    """Write it for this user alone: it holds lines of logs. Raises UsageError. A file that came
    meanwhile stays, unless it may be replaced."""
    try:
        check_page_target(target, overwrite)
        write_private_file(target, html)
    except OSError as error:
        raise UsageError(
            f"cannot write {target}: {error.strerror}", where="--to", next="--to names another file"
        ) from error
