"""Answers `release.*`: receives one state of the code (a release) in a staging folder, and then
renames this folder to the hash of the code.

The staging folder outlives an interrupted sync. Files that an older release already has become hard
links, and symbolic links are made on this host. The other files arrive by rsync, by a broadcast, or
with the commit. A finished release is never written to.
"""

from __future__ import annotations

import os
import time

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Optional
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import boot_id
from tfdeploy.agent.serve.call import Call, audited, requires_job_lock
from tfdeploy.agent.serve.release import contents as release_contents
from tfdeploy.agent.serve.release import manifest as release_manifest
from tfdeploy.agent.serve.release.retention import remove_old_releases, reuse_oldest_as_staging
from tfdeploy.agent.serve.release.staging import BegunRelease, Staging, StagingPlan
from tfdeploy.agent.serve.release.staging_folder import (
    check_space,
    install_staging_folder,
    remove_staging,
    staging_path,
)
from tfdeploy.agent.serve.release.state import is_intact

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer


def list_missing_files(call: Call) -> Answer:
    """List the files that release.begin would ask for. Changes nothing.

    Args: job, release; blob: as for release.begin.

    Raises VerbError bad_manifest.
    """
    plan = Staging(staging_path(call), release_manifest.unpack_manifest(call.blob)).plan()
    return {"missing": [entry.path for entry in plan.missing]}


@requires_job_lock
def begin_release(call: Call) -> Answer:
    """Begin to receive a release: link the files that older releases already have, and list the
    missing ones.

    Args: job, release; blob: zlib of the JSON [[path, kind, size, sha256, target], ...].

    Raises VerbError bad_manifest, disk (details needed_bytes, free_bytes; nothing is left behind).
    """
    entries = release_manifest.unpack_manifest(call.blob)
    folder = staging_path(call)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    _reuse_old_staging(folder)
    reuse_oldest_as_staging(call.workdir, call.job, call.name("release"), folder)
    staging = Staging(folder, entries)
    plan = staging.plan()
    try:
        _ensure_space(staging, plan)
        plan = staging.fill_with_links(plan)
        begun = BegunRelease(
            staging.entries_with_times(plan), [entry.path for entry in plan.missing]
        )
    except (VerbError, OSError):
        if plan.is_new:
            remove_staging(folder)
        raise
    call.context.begun_releases[folder] = begun
    rsync = any(os.access(os.path.join(each, "rsync"), os.X_OK) for each in os.get_exec_path())
    return {
        "staging": folder,
        "missing": begun.missing,
        "linked": len(plan.link_sources),
        "rsync": rsync,
    }


@requires_job_lock
@audited("sync", "sent")
def commit_release(call: Call) -> Answer:
    """Install a staged release. A damaged release with the same name is replaced. Contents are not
    hashed again, because rsync, the broadcast or SSH has verified what it brought. They are not
    flushed to disk either: if the host loses power, the next release.state hashes them.

    Args: job, release, staging; blob: the missing files, if they did not come by
    rsync or broadcast: zlib of the JSON list of their mtime_ns, a newline, and their contents, in
    the order of `missing`.

    Raises VerbError not_begun (in this session), bad_manifest.
    """
    workdir, job, release = call.workdir, call.job, call.name("release")
    folder, final = checked_staging_path(call), layout.release_dir(workdir, job, release)
    if not is_intact(workdir, job, release):
        entries, missing = find_begun_release(call)
        unchecked = set(missing)
        if call.blob:
            entries = release_contents.write_missing_files(folder, entries, missing, call.blob)
            unchecked = set()
        entries, changed = Staging(folder, entries).finish_received(unchecked)
        if changed:
            return {"changed": changed}
        path = release_manifest.manifest_path(final)
        release_manifest.save_manifest(
            path, entries, release=release, time=time.time(), boot=boot_id()
        )
        install_staging_folder(folder, final)
    call.context.begun_releases.pop(folder, None)
    remove_staging(folder)
    remove_old_releases(workdir, job, release)
    return {"changed": []}


def _reuse_old_staging(folder: str) -> None:
    """If this host left a staging folder of another release, rename it to `folder`, and remove any
    other old staging folders. Files that are equal in both releases need not be sent again. The
    caller holds the job's lock."""
    parent, own_name = os.path.split(folder)
    host_prefix = own_name.rpartition("-")[0]
    for name in os.listdir(parent):
        is_manifest = name.endswith(release_manifest.SUFFIX)
        if name.rpartition("-")[0] == host_prefix and name != own_name and not is_manifest:
            other = os.path.join(parent, name)
            if not os.path.isdir(folder):
                os.rename(other, folder)
            remove_staging(other)


def checked_staging_path(call: Call) -> str:
    """Return the path of the staging folder that a call names. Raises VerbError bad_name if the
    path is not that of a staging folder of this job."""
    path = call.text("staging")
    folder, name = os.path.split(path)
    releases = layout.releases_dir(call.workdir, call.job)
    if folder != releases or not name.startswith(".staging-"):
        raise VerbError("bad_name", "%r is no staging folder of this job" % path)
    return path


def find_begun_release(call: Call) -> BegunRelease:
    """Return the release that `release.begin` has staged in this session. If another session has
    staged it, this session must first call release.begin again. Raises VerbError not_begun."""
    folder = checked_staging_path(call)
    begun: Optional[BegunRelease] = call.context.begun_releases.get(folder)
    if begun is None or not os.path.isdir(folder):
        what = "no sync of release %s was begun in this session" % call.name("release")
        raise VerbError("not_begun", what, where=folder)
    return begun


def _ensure_space(staging: Staging, plan: StagingPlan) -> None:
    """Check that the disk has space for the missing files. If it does not, remove the partially
    received files and check again. Raises VerbError disk if the space is too small even then."""
    try:
        check_space(staging.folder, plan.missing)
    except VerbError:
        if plan.is_new:
            raise
        staging.remove_partial_files(plan.missing)
        check_space(staging.folder, plan.missing)


VERBS = {
    "release.missing": list_missing_files,
    "release.begin": begin_release,
    "release.commit": commit_release,
}
