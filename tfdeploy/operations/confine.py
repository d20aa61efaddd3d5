"""Check the paths that a host names in its answers.

A host may request only files that are being sent, and may receive files only in its own workdir.
"""

from __future__ import annotations

import os.path
from collections.abc import Collection

from tfdeploy.errors import BadAnswer
from tfdeploy.transport.protocols import Session


def check_requested_paths(
    sent_files: Collection[str], requested: list[str], host: str
) -> list[str]:
    """Check and return `requested`, the paths of the files that a host requests.

    Raises BadAnswer if a path is not in `sent_files`, or is requested twice.
    """
    seen: set[str] = set()
    for path in requested:
        if path not in sent_files or path in seen:
            problem = "a second time" if path in seen else "which is not among the files to send"
            raise BadAnswer(f"the host asks for {path!r:.200}, {problem}", where=host)
        seen.add(path)
    return requested


def check_below_workdir(session: Session, folder: str) -> str:
    """Check and return `folder`, the folder in which a host wants to receive files.

    Raises BadAnswer if the folder is outside the workdir of the host.
    """
    workdir = session.agent().hello.workdir
    if os.path.normpath(folder) != folder or not folder.startswith(workdir.rstrip("/") + "/"):
        raise BadAnswer(
            f"the host wants files in {folder!r:.200}, outside its workdir {workdir!r:.200}",
            where=session.host.name,
        )
    return folder
