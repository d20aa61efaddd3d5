"""Find which of the `hosts/<host>/` folders of a run belongs to this machine. There may be several
such folders, because hosts may share a workdir.

If the run has a single folder, that folder belongs to this machine. If the run has several folders,
this machine's folder is the first of these two that exists:

1. the folder that this machine has written since it booted;
2. a folder whose files contain this machine's hostname. Cloned machines may have the same hostname.
   So if one of the folders has the name that the session's inventory gives this machine, only that
   folder is accepted.

This module only reads.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Iterator, List, Optional
from tfdeploy.agent.errors import is_safe_name
from tfdeploy.agent.host.atomic import list_names
from tfdeploy.agent.run import check_files
from tfdeploy.agent.run.file_origin import boot_and_container_id, is_own_file, read_origin
from tfdeploy.agent.run.folder import RunPaths


def jobs_with_runs(workdir: str) -> List[str]:
    """Return the jobs that have runs in this workdir."""
    names = filter(is_safe_name, list_names(workdir))
    return [name for name in names if os.path.isdir(layout.runs_dir(workdir, name))]


def run_names(workdir: str, job: str) -> List[str]:
    return list(filter(is_safe_name, list_names(layout.runs_dir(workdir, job))))


def host_folders(workdir: str, job: str, run: str) -> List[RunPaths]:
    """Return the folders of all hosts for this run in this workdir. Folders without a part.json are
    left out. If the list is empty, the run is unknown in this workdir."""
    folders = all_host_folders(layout.run_dir(workdir, job, run))
    return [paths for paths in folders if not paths.was_removed()]


def all_host_folders(run_dir: str) -> List[RunPaths]:
    """Return the hosts' folders in the folder of a run, including incomplete ones."""
    hosts = os.path.join(run_dir, "hosts")
    return [RunPaths(os.path.join(hosts, name)) for name in list_names(hosts) if is_safe_name(name)]


def find_damage(workdir: str, job: str, run: str) -> Optional[str]:
    """Return what is wrong with the files of a run in this workdir. Return None if the run has no
    files there. Several hosts may share the workdir: also return None if the files of at least one
    of them are intact."""
    folder = layout.run_dir(workdir, job, run)
    if not os.path.isdir(folder):
        return "%s is no folder" % folder if os.path.lexists(folder) else None
    problem = None
    for paths in host_folders(workdir, job, run):
        damage = check_files.find_damage(paths)
        if damage is None:
            return None
        problem = problem or "%s: %s" % (folder, damage)
    return problem


def find_run_paths(
    workdir: str, job: str, run: str, inventory_name: str = ""
) -> Optional[RunPaths]:
    """Return the paths of this machine's folder of a run. Return None if this machine has no files
    of the run, or only damaged ones. `inventory_name`: as in is_own_file."""
    folders = host_folders(workdir, job, run)
    candidates = folders if len(folders) == 1 else _folders_of_machine(folders, inventory_name)
    return next((paths for paths in candidates if check_files.find_damage(paths) is None), None)


def _folders_of_machine(folders: List[RunPaths], inventory_name: str) -> Iterator[RunPaths]:
    """Yield the folders that this machine wrote, the most likely one first. A thousand hosts may
    share the workdir, so only one file of each folder is read, and the folder of the host
    `inventory_name` is read first."""
    if inventory_name not in [paths.host for paths in folders]:
        inventory_name = ""
    this_boot, before = boot_and_container_id(), []
    for paths in sorted(folders, key=lambda paths: paths.host != inventory_name):
        try:
            file_origin = read_origin(paths.state_file)
        except OSError:
            continue
        if file_origin.get("place") == this_boot:
            yield paths
        elif is_own_file(file_origin, paths.host, inventory_name):
            before.append(paths)
    yield from before


def runs_of_this_machine(workdir: str, job: str, inventory_name: str) -> Iterator[RunPaths]:
    """Yield this machine's folder of each run of the job, as `find_run_paths` returns it. Runs
    without intact files on this machine are left out."""
    for run in run_names(workdir, job):
        paths = find_run_paths(workdir, job, run, inventory_name)
        if paths is not None:
            yield paths


def other_runs_of_host(paths: RunPaths) -> Iterator[RunPaths]:
    """Yield the folders that the host of `paths` has for other runs of the same job. Damaged
    folders are left out."""
    for run in run_names(paths.workdir, paths.job):
        other = RunPaths(layout.host_dir(paths.workdir, paths.job, run, paths.host))
        if run != paths.run and check_files.find_damage(other) is None:
            yield other


def find_uncommitted_runs(workdir: str) -> Iterator[RunPaths]:
    """Yield a folder for each host of each uncommitted run in this workdir. A run is uncommitted
    from the moment at which its launch begins to prepare it, until it is committed or has ended.
    See uncommitted.py."""
    for name in list_names(layout.uncommitted_marks_dir(workdir)):
        fields = name.split("@")
        if len(fields) == 3 and all(map(is_safe_name, fields)):
            yield RunPaths(layout.host_dir(workdir, *fields))
