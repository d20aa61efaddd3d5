"""Receive from the control machine why the run is over, and pass the reason to the minder (the
agent's daemon on each host of the run). The control machine sends the reason if the minders of the
other hosts cannot reach this host.

The reason is written as a run state, the message that minders send to each other. The minder checks
it like a state from another minder, and then joins it with its own state.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout, wire
from tfdeploy.agent.host.atomic import read_json, write_json
from tfdeploy.agent.mesh import shared_state
from tfdeploy.agent.mesh.shared_state import KnownRunState
from tfdeploy.agent.run.folder import RunPaths


def take_forwarded_run_end(paths: RunPaths, part: wire.HostPart) -> KnownRunState:
    """Return the state that the control machine has left for the minder since the last call, and
    remove its file. If there is no such state or it is invalid, return an empty state."""
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
    """Write a file for the minder. It contains a state that says why the run is over. Then wake the
    minder. Raises OSError."""
    write_json(paths.file(layout.FORWARDED_END), run_end.as_json())
    paths.wake_minder()
