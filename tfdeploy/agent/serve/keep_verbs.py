"""Answers `keep.*`: receives files of another host's keep folders, so that every worker continues
from the same checkpoint. A keep folder is for checkpoints, and outlives the job's runs.

The files arrive in a separate folder and are then moved into `keep` together, the records named
`checkpoint` last. Nothing is deleted: a record that the other host does not have is renamed, so
that TensorFlow does not see it.
"""

from __future__ import annotations

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING
from tfdeploy.agent.call import Call, audited, requires_job_lock
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.ownership import check_owners
from tfdeploy.agent.run import find, keep_aside
from tfdeploy.agent.run.keep_folders import check_keep_paths
from tfdeploy.agent.run.keep_receive import (
    check_inside_keep,
    make_incoming_folder,
    move_received_into_keep,
)
from tfdeploy.agent.run.live_runs import list_live_runs

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer


@requires_job_lock
def make_incoming_keep_folder(call: Call) -> Answer:
    """Make an empty folder in which a broadcast puts the files of another host's `keep`.

    Args: job, bytes.

    Raises VerbError disk.
    """
    return {"folder": make_incoming_folder(call.workdir, call.job, call.integer("bytes"))}


@requires_job_lock
@audited("fetch", "files put in place")
def move_into_keep(call: Call) -> Answer:
    """Move the received files into `keep`, `checkpoint` records last. If a file is incomplete, no
    file is moved. Nothing is deleted.

    Args: job, keep [paths], files [[path, size, mtime_ns], ...], aside [files to rename first:
    `checkpoint` records that the sending host does not have, and files newer than those of the
    sending host], links? [[path, target], ...] (links to make).

    Raises VerbError bad_name, in_the_way, live_run (a live run of the job writes files that are
    newer than the received ones).
    """
    keep = check_keep_paths(call.rows("keep"))
    files = [
        (check_inside_keep(path, keep), int(size), int(mtime_ns))
        for path, size, mtime_ns in call.rows("files")
    ]
    paths_to_rename = [check_inside_keep(path, keep) for path in call.rows("aside")]
    links = [(check_inside_keep(path, keep), str(target)) for path, target in call.rows("links")]
    workdir, job = call.workdir, call.job
    _refuse_if_live_run(workdir, job, call.host)
    return {"missing": move_received_into_keep(workdir, job, files, paths_to_rename, links)}


@requires_job_lock
@audited("launch", "keep set aside")
def set_keep_folders_aside(call: Call) -> Answer:
    """Rename these folders of `keep` to PATH.before-RUN after a launch with `--fresh`, so that no
    later launch reads them. This verb is for a host without a task of the committed run; hosts with
    a task have renamed theirs before. Do nothing if a host of the run shares the workdir.

    Args: job, run, keep [paths].

    Raises VerbError bad_name, live_run.
    """
    workdir, job, run = call.workdir, call.job, call.name("run")
    keep = check_keep_paths(call.rows("keep"))
    check_owners(workdir, *layout.job_folders(job))
    # This host has no task of the run. So if the workdir has files of the run, these are from a
    # host of the run that shares the workdir. That host has already renamed the folders.
    if not find.host_folders(workdir, job, run):
        _refuse_if_live_run(workdir, job, call.host)
        keep_aside.rename_keep_without_task(workdir, job, run, keep)
    return {}


def _refuse_if_live_run(workdir: str, job: str, host: str) -> None:
    """Raise VerbError live_run if a run of the job is alive on this host. The job's lock normally
    prevents that. But if this session stalled, it may have lost the lock, and another operator may
    have launched a run."""
    for paths in list_live_runs(workdir, job, host):
        raise VerbError(
            "live_run",
            "run %s of job %s is alive on this host" % (paths.run, job),
            advice="stop_run",
            details={"run": paths.run},
        )


VERBS = {
    "keep.aside": set_keep_folders_aside,
    "keep.begin": make_incoming_keep_folder,
    "keep.place": move_into_keep,
}
