"""Warn if this machine's rsync has known security flaws, or cannot be confined to one folder."""

from __future__ import annotations

from functools import lru_cache

from tfdeploy.model.events import Emit
from tfdeploy.operations.emit import emit_note, emit_warning
from tfdeploy.transport.rsync import confinement, flaws


@lru_cache(maxsize=1)
def warn_of_rsync_flaws(emit: Emit) -> None:
    """Warn of the known flaws of rsync, once per command of tfdeploy.

    All calls within one command have the same `emit`, so the cache skips all calls but the first.
    """
    warning = flaws.describe_flaws()
    if warning is not None:
        emit_warning(emit, f"{warning[0]}. next: {warning[1]}")


def warn_of_rsync_risks(emit: Emit) -> None:
    """Emit a note if rsync cannot be confined to the folder that it fills.

    Call this before rsync receives files.
    """
    warn_of_rsync_flaws(emit)
    missing = confinement.describe_confinement_gap()
    if missing is not None:
        emit_note(
            emit,
            f"rsync on this machine is not confined to the folder it fills: {missing}",
            level="detail",
        )
