"""What a launch left half done on this host, because its serve or the machine died, is brought to an end by the next session.

Only what nobody does or minds any more, and never what was committed.
"""

from __future__ import annotations

import sys

from tfdeploy.agent import layout
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.ownership import check
from tfdeploy.agent.run import in_doubt, leftovers, liveness
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve import run_control
from tfdeploy.agent.serve.run_prepare import unless_preparing

WHY = "its launch did not come to an end"


def sweep(workdir: str, told: str = "") -> None:
    """All runs in doubt of this machine. One that cannot be swept, because it is not ours or damaged, is told on standard error
    and stays; the others do not wait for it."""
    for paths in in_doubt.of_this_host(workdir, told):
        try:
            _sweep_one(paths)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next session tries again
            said = "run %s of job %s is half done here and stays: %s" % (paths.run, paths.job, error)
            sys.stderr.write("tfdeploy agent: %s\n" % said)


def _sweep_one(paths: RunPaths) -> None:
    check(paths.workdir, *layout.of_job(paths.job))
    paths.check_owner("tasks")
    with unless_preparing(paths) as free:
        if free:
            _bring_to_an_end(paths)


def _bring_to_an_end(paths: RunPaths) -> None:
    whole = paths.is_whole()
    if is_locked(paths.minder_lock) or (whole and liveness.is_live(paths)):
        return  # its minder waits for the launch, or ends it
    if not liveness.was_committed(paths):
        if not whole or paths.state().started is None:
            leftovers.remove(paths)
        elif paths.state().phase != "ended":
            run_control.end_without_minder(paths, 0.0, WHY)
    leftovers.settle(paths)
