"""What is said of this machine's rsync before it talks to hosts: its holes, and whether it is
confined."""

from __future__ import annotations

from functools import lru_cache

from tfdeploy.model.events import Emit
from tfdeploy.operations.emit import emit_note
from tfdeploy.transport.rsync import confinement, flaws


@lru_cache(maxsize=1)
def warn_of_flaws(emit: Emit) -> None:
    """Once per command, for `emit` is one command's."""
    warning = flaws.describe_flaws()
    if warning is not None:
        emit_note(emit, f"{warning[0]}. next: {warning[1]}", level="warning")


def note_rsync(emit: Emit) -> None:
    """Before it receives: it is confined then, where the kernel can."""
    warn_of_flaws(emit)
    missing = confinement.missing()
    if missing is not None:
        emit_note(
            emit, f"rsync here is not confined to the folder it fills: {missing}", level="detail"
        )
