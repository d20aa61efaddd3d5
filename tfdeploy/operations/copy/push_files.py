"""Send files to one host from this machine by rsync: code, and data that only one host lacks."""

from __future__ import annotations

from tfdeploy.model.events import Emit
from tfdeploy.operations.copy.rsync_notes import warn_of_rsync_flaws
from tfdeploy.transport.protocols import Session
from tfdeploy.transport.rsync.transfer import Progress, push


def push_files(
    session: Session,
    root: str,
    names: list[bytes],
    folder: str,
    total_bytes: int,
    emit: Emit,
    on_progress: Progress,
    *,
    in_place: bool = False,
    older_folder: str | None = None,
) -> int:
    """Send the files `names` below `root` to the folder on the host. Return the bytes sent.

    `total_bytes`: the size of these files. `push` describes the other arguments and the errors.
    """
    warn_of_rsync_flaws(emit)
    return push(
        session.target,
        root,
        names,
        folder,
        in_place=in_place,
        older_folder=older_folder,
        on_progress=on_progress,
        session=session,
        total_bytes=total_bytes,
    )
