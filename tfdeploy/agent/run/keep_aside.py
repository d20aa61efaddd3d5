"""Rename keep folders (folders that outlive runs, for example with checkpoints) for `launch
--fresh` before the run starts, and rename them back if the launch is rolled back.

`keep/checkpoints` becomes `keep/checkpoints.before-RUN`, which no launch reads. The new names are
written to disk before the first rename, and each step is one rename. If this process is killed, the
end of the run or the next session (serve/run/ending.py) completes the work. Nothing is deleted:
files of the rolled-back run are kept as `keep/checkpoints.undone-RUN`.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Dict, List, Optional
from tfdeploy.agent.host.atomic import read_json, write_json
from tfdeploy.agent.ownership import check_made_by_us
from tfdeploy.agent.run import keep_links, liveness
from tfdeploy.agent.run.find import all_host_folders, find_uncommitted_runs, host_folders
from tfdeploy.agent.run.folder import RunPaths


def rename_keep_aside(paths: RunPaths, keep: List[str]) -> None:
    """Rename those `keep` folders that hold a file. If several hosts share the workdir, only the
    first host that gets here renames them. The other hosts copy its record of the new names. Raises
    OSError."""
    with keep_links.acquire_keep_lock(paths.workdir, paths.job):
        names = _read_sharing_host_renames(paths)
        if names is not None:
            write_json(paths.file(layout.ASIDE), names, durable=True)
            return
        names = _choose_new_names(paths.workdir, paths.job, paths.run, keep)
        write_json(paths.file(layout.ASIDE), names, durable=True)
        _rename_folders(paths.workdir, paths.job, names)


def rename_keep_without_task(workdir: str, job: str, run: str, keep: List[str]) -> Dict[str, str]:
    """Rename the `keep` folders on a host that has no task of the committed run. Return {path: new
    name}.

    Changes nothing if another host that shares the workdir has a task of the run, because that task
    writes to these folders.
    """
    with keep_links.acquire_keep_lock(workdir, job):
        if host_folders(workdir, job, run):
            return {}
        names = _choose_new_names(workdir, job, run, keep)
        _rename_folders(workdir, job, names)
        return names


def restore_keep_if_aborted(paths: RunPaths) -> None:
    """If the launch was rolled back, undo `rename_keep_aside`: give the folders their old names
    again. A second call changes nothing. Raises OSError.

    If several hosts share the workdir, only the host whose tasks end last does this.
    """
    names = _read_renames(paths)
    if not names or not _was_rolled_back(paths):
        return
    with keep_links.acquire_keep_lock(paths.workdir, paths.job):
        if not _may_run_on_sharing_host(paths):
            for path, aside in sorted(names.items()):
                _restore_folder_name(paths, path, aside)


def pending_keep_renames(workdir: str, job: str) -> Dict[str, str]:
    """Return {path: current name} of the keep folders that a launch has renamed and may still
    rename back."""
    return {
        path: aside
        for paths in find_uncommitted_runs(workdir)
        if paths.job == job
        for path, aside in _read_renames(paths).items()
        if os.path.isdir(layout.keep_dir(workdir, job, aside))
    }


def _choose_new_names(workdir: str, job: str, run: str, keep: List[str]) -> Dict[str, str]:
    names, root = {}, layout.keep_dir(workdir, job, "")
    for path in keep:
        folder = root + path
        if os.path.lexists(folder):
            check_made_by_us(folder, workdir)
            if not keep_links.is_empty(folder):
                names[path] = keep_links.unused_name(root, "%s.before-%s" % (path, run))
    return names


def _rename_folders(workdir: str, job: str, new_name_by_path: Dict[str, str]) -> None:
    for path, aside in new_name_by_path.items():
        os.rename(layout.keep_dir(workdir, job, path), layout.keep_dir(workdir, job, aside))


def _restore_folder_name(paths: RunPaths, path: str, renamed_folder: str) -> None:
    root = layout.keep_dir(paths.workdir, paths.job, "")
    folder, before = root + path, root + renamed_folder
    if not os.path.lexists(before):
        return  # an earlier call has already restored the folder's old name
    if os.path.lexists(folder) and not keep_links.remove_if_empty(folder):
        os.rename(folder, keep_links.unused_name("", "%s.undone-%s" % (folder, paths.run)))
    os.rename(before, folder)


def _was_rolled_back(paths: RunPaths) -> bool:
    """Return whether the launch was rolled back: the run was not committed on this host, or a host
    with this workdir was ordered to abort the run. An order for any of these hosts counts, because
    another host may have failed after this host had received the commit."""
    aborted = any(
        host.minder_order("abort") is not None
        for host in (paths, *_list_sharing_host_folders(paths))
    )
    return aborted or not liveness.was_committed(paths)


def _read_sharing_host_renames(paths: RunPaths) -> Optional[Dict[str, str]]:
    """Return {path: new name} of the folders that another host with the same workdir has renamed
    for this run. Return None if no host has done so yet."""
    for other in _list_sharing_host_folders(paths):
        if os.path.exists(other.file(layout.ASIDE)):
            return _read_renames(other)
    return None


def _may_run_on_sharing_host(paths: RunPaths) -> bool:
    """Return whether a task of the run may be alive on another host that shares the workdir. Such a
    task may write to the keep folders."""
    return any(
        other.has_readable_part()
        and other.state().phase != "ended"
        and liveness.has_live_agent_process(other)
        for other in _list_sharing_host_folders(paths)
    )


def _list_sharing_host_folders(paths: RunPaths) -> List[RunPaths]:
    """Return the run's folders in this workdir that belong to other hosts. Hosts that have only
    begun to prepare the run are included."""
    return [other for other in all_host_folders(paths.run_dir) if other.host != paths.host]


def _read_renames(paths: RunPaths) -> Dict[str, str]:
    names = read_json(paths.file(layout.ASIDE)) or {}
    return {path: aside for path, aside in names.items() if isinstance(aside, str)}
