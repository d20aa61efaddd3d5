"""Pass to the minder (the agent's daemon for the run on this host) why the run is over. The control
machine sends this reason if the minders of the other hosts cannot reach this host.

The reason is written to a file, as a state of the run in the form that minders send to each other.
The minder checks this state like one from another minder, and then joins it with its own state.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout, wire
from tfdeploy.agent.host.atomic import read_json, write_json
from tfdeploy.agent.mesh import shared_state
from tfdeploy.agent.mesh.shared_state import KnownRunState
from tfdeploy.agent.run.folder import RunPaths


def take_forwarded_run_end(paths: RunPaths, part: wire.HostPart) -> KnownRunState:
    """Return the state that the control machine has sent since the last call, and remove the file
    that contains it. Return an empty state if nothing was sent, or if what was sent is invalid."""
    path = paths.file(layout.FORWARDED_END)
    received = read_json(path)
    if received is None:
        return KnownRunState()
    try:
        os.unlink(path)
        return shared_state.from_json(received, part)
    except (OSError, ValueError):
        return KnownRunState()


def write_forwarded_run_end(paths: RunPaths, run_end: KnownRunState) -> None:
    """Write `run_end`, a state that says why the run is over, to a file for the minder. Then wake
    the minder. Raises OSError."""
    write_json(paths.file(layout.FORWARDED_END), run_end.as_json())
    paths.wake_minder()
