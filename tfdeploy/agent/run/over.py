"""Decide whether a run may be removed: it must have ended on every host that has files of the run
in this workdir, and none of its processes may be alive.

Other hosts may share the workdir. Their locks, and the files that their minders wrote, show whether
the run has ended on those hosts.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import List, Optional, Set
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.atomic import list_names
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.ownership import UntrustedPath, check_owners
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.run import check_files, liveness, task_processes, uncommitted
from tfdeploy.agent.run.file_origin import is_own_file, read_origin
from tfdeploy.agent.run.find import all_host_folders
from tfdeploy.agent.run.folder import RunPaths

# The beginnings of the names of incomplete files and folders in a workdir. An interrupted operation
# may leave such entries.
INCOMPLETE_PREFIXES = (".cwd.", ".staging-", ".damaged-", ".gone-")
# The beginnings of the names of incomplete files and folders in a run's own folder.
INCOMPLETE_RUN_PREFIXES = INCOMPLETE_PREFIXES + ("gone-",)
SESSION_PREFIXES = (".tensorboard-",)  # a session that makes such an entry removes it at its end
RUN_ENTRIES = (layout.PLAN, "cwd", "hosts")  # the names in the folder of a complete run
_STILL_INFORMS = "its minder is still telling other hosts that the run has ended"


class RunRemovalState(NamedTuple):
    """Whether a run may be removed. `ended_time`: when the run ended, in UTC seconds. None if the
    run has not ended, or if no host has complete files of the run. `blocking_reason`: why the run
    may not be removed, or "". `may_be_alive`: whether a process of the run is alive on this host or
    may be alive on another host."""

    ended_time: Optional[float]
    blocking_reason: str
    may_be_alive: bool


def find_removal_state(
    workdir: str, job: str, run: str, inventory_name: str, runs_with_processes: Set[str]
) -> RunRemovalState:
    """Return whether a run may be removed, and the reason if it may not. `inventory_name`: this
    machine's name in the session's inventory, or "" if the session did not say.
    `runs_with_processes`: the result of `find_runs_with_processes`."""
    folder = layout.run_dir(workdir, job, run)
    ended: Optional[float] = None
    damaged = ""
    for paths in all_host_folders(folder):
        if os.path.isdir(paths.host_dir):
            standing = _host_removal_state(paths, inventory_name)
            if standing.may_be_alive:
                return standing
            damaged = damaged or standing.blocking_reason
            ended = standing.ended_time if ended is None else max(ended, standing.ended_time or 0.0)
    if run in runs_with_processes:
        return RunRemovalState(None, "processes of the run are alive", True)
    return RunRemovalState(
        ended, damaged or _explain_foreign_files(workdir, job, run, folder), False
    )


def is_incomplete_name(name: str) -> bool:
    """Return whether `name` is one that tfdeploy gives to incomplete files and folders. Such a name
    begins with a dot. Names that users choose never do."""
    return name.startswith(INCOMPLETE_PREFIXES) or (name.startswith(".") and name.endswith(".tmp"))


def find_runs_with_processes(workdir: str, job: str) -> Set[str]:
    """Return the names of the job's runs that have a live process on this host. A single search
    finds the runs of all these processes, because each process has its run in its environment."""
    within = os.path.realpath(layout.runs_dir(workdir, job)) + os.sep
    environments = (
        processes.read_environment(pid)
        for pid in task_processes.find_processes_by_environment(workdir, job)[0]
    )
    return {
        marks.get(task_processes.FOLDER_MARKER, "")[len(within) :].split(os.sep)[0]
        for marks in environments
    }


def find_unknown_paths(folder: str) -> List[str]:
    """Return the paths directly in a run's folder that were not made by tfdeploy."""
    return [
        os.path.join(folder, name)
        for name in list_names(folder)
        if name not in RUN_ENTRIES
        and not name.startswith(INCOMPLETE_RUN_PREFIXES + SESSION_PREFIXES)
    ]


def _host_removal_state(paths: RunPaths, inventory_name: str) -> RunRemovalState:
    host = paths.host
    if not paths.has_readable_part():
        locks = layout.locks_dir(paths.workdir, paths.job)
        if (
            is_locked(paths.minder_lock)
            or uncommitted.is_uncommitted(paths)
            or is_locked(os.path.join(locks, "prepare." + host))
        ):
            return RunRemovalState(None, "the run is being prepared on %s" % host, True)
        return RunRemovalState(None, "", False)
    damage = check_files.find_damage(paths)
    if damage is not None:
        return RunRemovalState(
            None,
            "the run's record is damaged on %s: %s" % (host, damage),
            is_locked(paths.minder_lock),
        )
    state = paths.state()
    if state.phase == "ended":
        lingers = is_locked(paths.minder_lock)
        return RunRemovalState(state.ended or 0.0, _STILL_INFORMS if lingers else "", lingers)
    if liveness.has_live_agent_process(paths):
        return RunRemovalState(None, "the run is alive on %s" % host, True)
    is_here = inventory_name == host or is_own_file(
        read_origin(paths.state_file), host, inventory_name
    )
    return RunRemovalState(None, "the run has not ended on %s" % host, not is_here)


def _explain_foreign_files(workdir: str, job: str, run: str, folder: str) -> str:
    try:
        check_owners(workdir, "%s/runs/%s/hosts" % (job, run), "%s/runs/%s/cwd" % (job, run))
    except UntrustedPath as error:
        return str(error)
    unknown = find_unknown_paths(folder)
    return "%s was not made by tfdeploy" % unknown[0] if unknown else ""
