"""What a launch left half done on this host, because its serve or the machine died, is brought to an end by the next session.

Only what nobody does or minds any more, and never what was committed.
"""

from __future__ import annotations

from tfdeploy.agent import control, endgame, indoubt, layout, runs
from tfdeploy.agent.atomic import read_json
from tfdeploy.agent.ownership import check
from tfdeploy.agent.paths import RunPaths, is_locked
from tfdeploy.agent.prepare import unless_preparing

WHY = "its launch did not come to an end"


def sweep(workdir: str, told: str = "") -> None:
    """All runs in doubt of this machine. Raises OSError, also NotOurs."""
    for paths in indoubt.of_this_host(workdir, told):
        check(workdir, *layout.of_job(paths.job))
        paths.check_owner("tasks")
        with unless_preparing(paths) as free:
            if free:
                _bring_to_an_end(paths)


def _bring_to_an_end(paths: RunPaths) -> None:
    whole = read_json(paths.file("part.json")) is not None
    if is_locked(paths.file("minder.lock")) or (whole and runs.is_live(paths)):
        return  # its minder waits for the launch, or ends it
    if not runs.was_committed(paths):
        if not whole or paths.state().started is None:
            endgame.remove(paths)
        elif paths.state().phase != "ended":
            control.end_without_minder(paths, 0.0, WHY)
    endgame.settle(paths)
