"""Pass the reason why the run is over from the control machine to this host's minder. The control
machine uses this for a host that the other minders cannot reach.

The reason is checked and joined to the shared state like a message of the mesh.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout, wire
from tfdeploy.agent.host.atomic import read_json, write_json
from tfdeploy.agent.mesh import shared_state
from tfdeploy.agent.mesh.shared_state import Knowledge
from tfdeploy.agent.run.folder import RunPaths


def take_told_end(paths: RunPaths, part: wire.HostPart) -> Knowledge:
    """Return the state that the control machine has left since the last call, and remove its file.
    An empty state: it has left none, or an invalid one."""
    path = paths.file(layout.TOLD)
    received = read_json(path)
    if received is None:
        return Knowledge()
    try:
        os.unlink(path)
        return shared_state.from_json(received, part)
    except (OSError, ValueError):
        return Knowledge()


def tell(paths: RunPaths, run_end: Knowledge) -> None:
    """Leave the part of the shared state that says why the run is over, and wake the minder. Raises
    OSError."""
    write_json(paths.file(layout.TOLD), run_end.as_json())
    paths.wake()
