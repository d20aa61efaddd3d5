"""Decide whether a run may be removed: it must have ended on every host that has files of it in
this workdir, and none of its processes may be alive.

Other hosts may share the workdir. Their locks, and the files that their minders wrote, show whether
the run has ended on those hosts.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import List, Optional, Set
from tfdeploy.agent.errors import is_name
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.ownership import NotOurs, check_owners
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.run import check_files, in_doubt, liveness, task_processes
from tfdeploy.agent.run.find import is_own_file, list_names, read_origin
from tfdeploy.agent.run.folder import RunPaths

# If an interrupted operation left an entry, the entry's name begins with one of these texts.
HALVES = (".cwd.", ".staging-", ".damaged-", ".gone-")
OF_RUN_HALVES = HALVES + ("gone-",)  # the same, for entries in a run's own folder
OF_SESSIONS = (".tensorboard-",)  # these entries are removed when their session ends
OF_RUN = (layout.PLAN, "cwd", "hosts")  # the entries of a complete run
_WAITS = "its minder still tells other hosts of its end"


class RunStanding(NamedTuple):
    """The state of one run. `ended`: when the run ended, in UTC seconds; None if it has not ended,
    or if no host has complete files of it. `stays`: why the run may not be removed, or "". `live`:
    whether a process of the run is alive, or may be alive on another host."""

    ended: Optional[float]
    stays: str
    live: bool


def find_standing(
    workdir: str, job: str, run: str, inventory_name: str, marked: Set[str]
) -> RunStanding:
    """Return the state of a run. `inventory_name`: as in find.is_own. `marked`: what `marked_runs` has
    returned."""
    folder = layout.run_dir(workdir, job, run)
    ended: Optional[float] = None
    damaged = ""
    for host in _list_hosts(folder):
        one = _host_standing(RunPaths(os.path.join(folder, "hosts", host)), inventory_name)
        if one.live:
            return one
        damaged = damaged or one.stays
        ended = one.ended if ended is None else max(ended, one.ended or 0.0)
    if run in marked:
        return RunStanding(None, "processes of it are alive", True)
    return RunStanding(ended, damaged or _find_foreign(workdir, job, run, folder), False)


def is_incomplete_name(name: str) -> bool:
    """Return whether tfdeploy gives this name to an incomplete entry. Such a name begins with a
    dot; names that users choose do not."""
    return name.startswith(HALVES) or (name.startswith(".") and name.endswith(".tmp"))


def marked_runs(workdir: str, job: str) -> Set[str]:
    """Return the runs of the job that have a live process on this host. The environment of each
    process names its run. One search covers all runs."""
    within = os.path.realpath(layout.runs_dir(workdir, job)) + os.sep
    environments = (
        processes.read_environment(pid) for pid in task_processes.find_strays(workdir, job)[0]
    )
    return {
        marks.get(task_processes.FOLDER_MARKER, "")[len(within) :].split(os.sep)[0]
        for marks in environments
    }


def find_unknown_paths(folder: str) -> List[str]:
    """Return the paths in a run's folder that tfdeploy has not made."""
    names = list_names(folder)
    return [
        os.path.join(folder, name)
        for name in names
        if name not in OF_RUN and not name.startswith(OF_RUN_HALVES + OF_SESSIONS)
    ]


def _host_standing(paths: RunPaths, inventory_name: str) -> RunStanding:
    host = paths.host
    if not paths.is_whole():
        if (
            is_locked(paths.minder_lock)
            or in_doubt.is_in_doubt(paths)
            or is_locked(_prepare_lock(paths))
        ):
            return RunStanding(None, "it is being prepared on %s" % host, True)
        return RunStanding(None, "", False)
    wrong = check_files.find_damage(paths.workdir, paths.job, paths.run, host)
    if wrong is not None:
        return RunStanding(
            None, "it is damaged on %s: %s" % (host, wrong), is_locked(paths.minder_lock)
        )
    state = paths.state()
    if state.phase == "ended":
        lingers = is_locked(paths.minder_lock)
        return RunStanding(state.ended or 0.0, _WAITS if lingers else "", lingers)
    locks = [paths.minder_lock, *(paths.supervisor_lock(spec.task) for spec in paths.part().tasks)]
    if liveness.is_live(paths) or any(is_locked(lock) for lock in locks):
        return RunStanding(None, "it is alive on %s" % host, True)
    is_here = inventory_name == host or is_own_file(
        read_origin(paths.state_file), host, inventory_name
    )
    return RunStanding(None, "it has not ended on %s" % host, not is_here)


def _prepare_lock(paths: RunPaths) -> str:
    return os.path.join(layout.locks_dir(paths.workdir, paths.job), "prepare." + paths.host)


def _find_foreign(workdir: str, job: str, run: str, folder: str) -> str:
    try:
        check_owners(workdir, "%s/runs/%s/hosts" % (job, run), "%s/runs/%s/cwd" % (job, run))
    except NotOurs as error:
        return str(error)
    reason = find_unknown_paths(folder)
    return "%s is not tfdeploy's" % reason[0] if reason else ""


def _list_hosts(folder: str) -> List[str]:
    names = list_names(os.path.join(folder, "hosts"))
    return [
        name
        for name in names
        if is_name(name) and os.path.isdir(os.path.join(folder, "hosts", name))
    ]
