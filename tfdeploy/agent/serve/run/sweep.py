"""Cleans up launches that did not finish on this host because their serve process or the machine
died. Each new session starts this cleanup.

A run that is being prepared, has a minder or was committed is left alone.
"""

from __future__ import annotations

import sys

from tfdeploy.agent import layout
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.ownership import check_owners
from tfdeploy.agent.run import in_doubt, leftovers, liveness
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.run import prepare_lock
from tfdeploy.agent.serve.run import verbs as run_control

WHY = "its launch was not completed"


def undo_unfinished_launches(workdir: str, host: str) -> None:
    """Clean up all unfinished launches of this machine. `host`: this machine's name in the
    session's inventory, or "".

    A run that cannot be cleaned up, because its folder belongs to another user or is damaged, stays
    and is reported on standard error.
    """
    for paths in in_doubt.own_runs_in_doubt(workdir, host):
        try:
            _undo_unfinished_launch(paths)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next session tries again
            report = "tfdeploy agent: unfinished launch of run %s (job %s) cannot be undone: %s\n"
            sys.stderr.write(report % (paths.run, paths.job, error))


def _undo_unfinished_launch(paths: RunPaths) -> None:
    check_owners(paths.workdir, *layout.job_folders(paths.job))
    paths.check_owner("tasks")
    with prepare_lock.hold_if_free(paths) as is_free:
        if is_free:
            _end_or_remove_run(paths)


def _end_or_remove_run(paths: RunPaths) -> None:
    whole = paths.has_readable_part()
    if is_locked(paths.minder_lock) or (whole and liveness.is_live(paths)):
        return  # the run's minder is alive: it waits until the launch goes on, or ends the run
    if not liveness.was_committed(paths):
        if not whole or paths.state().started is None:
            leftovers.remove_run(paths)
        elif paths.state().phase != "ended":
            run_control.end_run_without_minder(paths, 0.0, WHY)
        else:
            leftovers.restore_keep_if_aborted(paths)
    leftovers.remove_doubt_files(paths)
