"""Answers run.renew, run.start and run.commit: the steps of a launch after run.prepare. Each of
them writes an order for the run's minder (the run's process on this host). run.start and run.commit
wait for the effect.
"""

from __future__ import annotations

import time

from tfdeploy.agent.annotations import TYPE_CHECKING, Callable
from tfdeploy.agent.call import Call, audited
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.minder.decide import STOPPED_BY_OPERATOR
from tfdeploy.agent.run import liveness, old_secrets
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.run.status import is_of_named_plan, named_run_paths, read_phase

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

ANSWER_WITHIN_S = 20.0  # a minder that does not answer in this time counts as failed
STARTED = ("started", "committed", "ending", "ended")


def start_run(call: Call) -> Answer:
    """Start the tasks of a prepared run. A second call changes nothing.

    Args: run, job.

    Raises VerbError unknown_run, ended.
    """
    paths = named_run_paths(call)
    state = paths.state()
    if (
        state.phase == "ended"
        and state.started
        and not (state.abort_reason or state.stop_requested)
    ):
        return {}  # the run was started, and has already ended by itself
    refuse_if_ended(paths)
    # A repeated run.start restarts the time for which the minder waits for the commit.
    if paths.minder_order("start") is None or read_phase(paths) == "started":
        paths.write_minder_order("start", time=time.time())
    _wait_until_reached(
        paths, lambda: read_phase(paths) in STARTED and _have_all_tasks_begun(paths)
    )
    refuse_if_ended(paths)
    return {}


def _have_all_tasks_begun(paths: RunPaths) -> bool:
    return read_phase(paths) == "ended" or all(
        paths.status(spec.task).state != "pending" for spec in paths.part().tasks
    )


def record_launch_alive(call: Call) -> Answer:
    """Record that the launch is alive. From the preparation of the run until its commit, the launch
    calls `run.renew` every 15 s. Each call extends the time for which a prepared or started run
    waits for the launch.

    Args: run, job, plan_digest.

    Raises VerbError unknown_run (also if another plan prepared the run), ended.
    """
    paths = named_run_paths(call)
    if not is_of_named_plan(call, paths):
        what = "run %s of this host was prepared by another launch" % paths.run
        raise VerbError("unknown_run", what)
    if not _is_committed(paths):
        refuse_if_ended(paths, refused_phases=("ending",))
        paths.write_minder_order("renew", time=time.time())
    return {}


@audited("launch", "committed")
def commit_started_run(call: Call) -> Answer:
    """Commit a started run, so that it continues without the launch. A second call changes nothing.

    Args: run, job.

    Raises VerbError unknown_run, not_started, ended (with the reason why the run ended).
    """
    paths = named_run_paths(call)
    if _is_committed(paths):
        return {}
    refuse_if_ended(paths)
    if read_phase(paths) == "prepared" and paths.minder_order("start") is None:
        raise VerbError("not_started", "run %s was not started on this host" % paths.run)
    if paths.minder_order("commit") is None:
        paths.write_minder_order("commit", time=time.time())
    _wait_until_reached(
        paths, lambda: _is_committed(paths) or read_phase(paths) in ("ending", "ended")
    )
    if not _is_committed(paths):
        refuse_if_ended(paths, refused_phases=("ending",))
    old_secrets.remove_other_runs_secrets(paths)
    return {}


def _is_committed(paths: RunPaths) -> bool:
    return paths.is_commit_recorded() and read_phase(paths) != "started"


def refuse_if_ended(paths: RunPaths, refused_phases: "tuple[str, ...]" = ()) -> None:
    """Raise VerbError ended if the run has ended on this host, if it is in one of the phases in
    `refused_phases`, or if neither its minder nor a supervisor is alive."""
    state = paths.state()
    if state.phase == "ended" or state.phase in refused_phases or not liveness.is_live(paths):
        stopped = STOPPED_BY_OPERATOR if state.stop_requested else "its minder is gone"
        what = "run %s has ended on this host: %s" % (paths.run, state.abort_reason or stopped)
        raise VerbError("ended", what, advice="status_of_run", details={"run": paths.run})


def _wait_until_reached(paths: RunPaths, is_reached: Callable[[], bool]) -> None:
    """Wait until `is_reached` returns true, or until the run is no longer alive. Raises VerbError
    agent if the minder does not answer in time."""
    deadline = time.monotonic() + ANSWER_WITHIN_S
    pause = 0.002
    while not is_reached():
        if time.monotonic() > deadline:
            raise VerbError("agent", "the run's minder does not answer", where=paths.minder_log)
        if not liveness.is_live(paths) and not is_reached():
            return
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


VERBS = {"run.renew": record_launch_alive, "run.start": start_run, "run.commit": commit_started_run}
