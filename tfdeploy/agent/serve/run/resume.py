"""Answers run.resume: starts the minder again on a host where no process of the run is alive, for
example after a reboot.

The run must be committed, must not have ended on this host, and must be the job's latest run on
this host.
"""

from __future__ import annotations

from tfdeploy.agent.annotations import TYPE_CHECKING
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.run import find, liveness
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.call import Call, audited
from tfdeploy.agent.serve.run import prepare_lock
from tfdeploy.agent.serve.run import status as run_status
from tfdeploy.agent.serve.run.minder_start import start_minder
from tfdeploy.agent.serve.run.prepare import refuse_other_live_run

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer


@audited("status", "resumed")
def resume_run(call: Call) -> Answer:
    """Start a minder if the run has none, for example after a reboot. Tasks that ran before the
    reboot are `lost`. The minder first receives the run's state from another host, and then decides
    which tasks start again.

    Args: run, job.

    Raises VerbError unknown_run, ended (or never committed), superseded (a later run of the job was
    prepared on this host), locked, live_run, port_taken.
    """
    paths = run_status.named_run_paths(call)
    with prepare_lock.hold(paths):
        if liveness.is_live(paths):
            return {"resumed": False}
        if not liveness.is_abandoned(paths):
            what = "run %s has ended on this host, or was never committed" % paths.run
            raise VerbError("ended", what)
        _refuse_if_superseded(paths)
        refuse_other_live_run(paths)
        start_minder(paths, paths.part())
    return {"resumed": True}


def _refuse_if_superseded(paths: RunPaths) -> None:
    """Refuse if a run of the job was prepared on this host after this run. Raises VerbError
    superseded."""
    prepared = paths.prepared_time()
    for other in find.other_runs_of_host(paths):
        if other.prepared_time() > prepared:
            what = "a later run, %s, was prepared on this host" % other.run
            raise VerbError("superseded", what, advice="status_of_run", details={"run": other.run})


VERBS = {"run.resume": resume_run}
