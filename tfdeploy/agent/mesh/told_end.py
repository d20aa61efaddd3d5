"""Learn why the run is over from the control machine, which carries the reason to a host that the
other minders cannot reach.

The reason counts like a message over the mesh, and is checked like one.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout, wire
from tfdeploy.agent.host.atomic import read_json, write_json
from tfdeploy.agent.mesh import shared_state
from tfdeploy.agent.mesh.shared_state import Knowledge
from tfdeploy.agent.run.folder import RunPaths


def take_told_end(paths: RunPaths, part: wire.HostPart) -> Knowledge:
    """Read and remove what was left since the last call."""
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
    """Leave the reason for the minder, and wake it up. Raises OSError."""
    write_json(paths.file(layout.TOLD), run_end.as_json())
    paths.wake()
