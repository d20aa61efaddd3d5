"""What a host asks for is not taken for what it may have: files of what is sent, folders below its own workdir."""

from __future__ import annotations

import os.path
from collections.abc import Collection

from tfdeploy.errors import BadAnswer
from tfdeploy.transport.protocols import Session


def only_of(ours: Collection[str], named: list[str], host: str) -> list[str]:
    """The paths a host names, all of them ours and each once. Raises BadAnswer."""
    seen: set[str] = set()
    for path in named:
        if path not in ours or path in seen:
            how = "and more than once" if path in seen else "which is no file of what is sent"
            raise BadAnswer(f"it asks for {path!r:.200}, {how}", where=host)
        seen.add(path)
    return named


def below_workdir(session: Session, folder: str) -> str:
    """The folder that a host names as the place for our files. Raises BadAnswer where that is elsewhere."""
    workdir = session.agent().hello.workdir
    if os.path.normpath(folder) != folder or not folder.startswith(workdir.rstrip("/") + "/"):
        raise BadAnswer(f"it names {folder!r:.200} for our files, outside its workdir {workdir!r:.200}", where=session.host.name)
    return folder
