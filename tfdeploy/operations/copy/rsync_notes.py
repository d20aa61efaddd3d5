"""What is said of this machine's rsync before it receives from hosts: its holes, and whether it is confined."""

from __future__ import annotations

from tfdeploy.model.events import Emit
from tfdeploy.operations.emit import note
from tfdeploy.transport.rsync import confinement, flaws


def note_rsync(emit: Emit) -> None:
    """Once per command."""
    found = flaws.words()
    if found is not None:
        note(emit, f"{found[0]}. next: {found[1]}", level="warning")
    missing = confinement.missing()
    if missing is not None:
        note(emit, f"rsync here is not confined to the folder it fills: {missing}", level="detail")
