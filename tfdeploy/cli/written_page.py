"""A page that is written to a file: whole or not at all, and over an existing file only where that was asked for."""

from __future__ import annotations

import os
from pathlib import Path

from tfdeploy.errors import UsageError


def check_target(target: Path, overwrite: bool) -> None:
    """Raises UsageError where it cannot be written."""
    if target.is_dir():
        raise UsageError(f"{target} is a folder", where="--to", next=f"--to {target / 'report.html'}")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", where="--to", next=f"mkdir -p {target.parent}")
    if target.exists() and not overwrite:
        raise UsageError(f"{target} is there already", where="--to", next="--overwrite replaces it, --to FILE writes another")


def write_page(target: Path, text: str, overwrite: bool) -> None:
    """Raises UsageError. A file that came meanwhile stays, unless it may be replaced."""
    half = target.with_name(f".{target.name[:100]}.{os.urandom(4).hex()}")
    try:
        try:
            half.write_text(text, encoding="utf-8")
            check_target(target, overwrite)
            half.replace(target)
        finally:
            half.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}", where="--to", next="--to names another file") from error
