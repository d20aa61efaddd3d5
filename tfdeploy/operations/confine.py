"""Limit what a host may ask for: files that are being sent, and folders in its own workdir."""

from __future__ import annotations

import os.path
from collections.abc import Collection

from tfdeploy.errors import BadAnswer
from tfdeploy.transport.protocols import Session


def check_requested_paths(ours: Collection[str], named: list[str], host: str) -> list[str]:
    """Return the paths that a host asks for. Raise BadAnswer unless each is in `ours`, once."""
    seen: set[str] = set()
    for path in named:
        if path not in ours or path in seen:
            how = "and more than once" if path in seen else "which is not a file that is being sent"
            raise BadAnswer(f"it asks for {path!r:.200}, {how}", where=host)
        seen.add(path)
    return named


def check_below_workdir(session: Session, folder: str) -> str:
    """Return the folder that a host names for our files. Raise BadAnswer if it is outside its
    workdir."""
    workdir = session.agent().hello.workdir
    if os.path.normpath(folder) != folder or not folder.startswith(workdir.rstrip("/") + "/"):
        raise BadAnswer(
            f"it names {folder!r:.200} for our files, outside its workdir {workdir!r:.200}",
            where=session.host.name,
        )
    return folder
