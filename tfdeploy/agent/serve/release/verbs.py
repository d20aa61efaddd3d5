"""`release.*`: one content of the code becomes a folder named by its hash, in one rename.

It grows in a staging folder that outlives a broken sync. Files whose content an older release has
are hard links; symbolic links are made here; rsync or a broadcast brings the rest, or it comes with
the commit. Nothing is ever written into a finished release.
"""

from __future__ import annotations

import os
import time

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Optional
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.fsync import flush
from tfdeploy.agent.serve.call import Call, audited, fenced
from tfdeploy.agent.serve.release import contents as release_contents
from tfdeploy.agent.serve.release import manifest as release_manifest
from tfdeploy.agent.serve.release.place import (
    KEEP,
    check_room,
    remove_staging,
    staging_path,
    switch,
)
from tfdeploy.agent.serve.release.retention import remove_old
from tfdeploy.agent.serve.release.staging import Begun, Staging, StagingPlan
from tfdeploy.agent.serve.release.state import is_present

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer


def list_missing(call: Call) -> Answer:
    """Say which files release.begin would ask for. Changes nothing.

    Args: job, release; blob: as of release.begin.

    Raises VerbError bad_manifest.
    """
    plan = Staging(staging_path(call), release_manifest.unpack(call.blob)).plan()
    return {"missing": [entry.path for entry in plan.missing]}


@fenced
def begin(call: Call) -> Answer:
    """Stage a release: lend from older releases what is the same, and say what has to be brought.

    Args: job, release; blob: zlib of the JSON [[path, kind, size, sha256, target], ...].

    Raises VerbError bad_manifest, disk (details needed_bytes, free_bytes; nothing is left behind).
    """
    entries = release_manifest.unpack(call.blob)
    folder = staging_path(call)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    _adopt(folder)
    staging = Staging(folder, entries)
    plan = staging.plan()
    try:
        _make_room(staging, plan)
        plan = staging.fill(plan)
        begun = Begun(staging.stamped(plan), [entry.path for entry in plan.missing])
    except (VerbError, OSError):
        if plan.is_new:
            remove_staging(folder)
        raise
    call.context.begun[folder] = begun
    rsync = any(os.access(os.path.join(each, "rsync"), os.X_OK) for each in os.get_exec_path())
    return {
        "staging": folder,
        "missing": begun.missing,
        "linked": len(plan.lenders),
        "rsync": rsync,
    }


@fenced
@audited("sync", "sent")
def commit(call: Call) -> Answer:
    """Put a begun release in place, also of a damaged one, once all of it is flushed to the disk.
    Contents are not hashed again: rsync, the pieces of a broadcast and SSH verify what they bring.

    Args: job, release, staging, keep_releases?; blob: where nothing else brought what is missing,
    zlib of the JSON list of the mtime_ns, a newline, and the contents, in the order of `missing`.

    Raises VerbError not_begun (in this session), bad_manifest.
    """
    workdir, job, release = call.context.workdir, call.name("job"), call.name("release")
    folder, final = staging_of(call), layout.release_dir(workdir, job, release)
    if not is_present(workdir, job, release):
        begun = begun_of(call)
        entries, unseen = begun.entries, set(begun.missing)
        if call.blob:
            entries, unseen = (
                release_contents.write(folder, entries, begun.missing, call.blob),
                set(),
            )
        entries, changed = Staging(folder, entries).finish(unseen)
        if changed:
            return {"changed": changed}
        flush(folder, begun.missing)
        path = release_manifest.path_of(final)
        release_manifest.save(path, entries, durable=True, release=release, time=time.time())
        switch(folder, final)
    call.context.begun.pop(folder, None)
    remove_staging(folder)
    remove_old(workdir, job, release, max(1, call.integer("keep_releases", KEEP)))
    return {"changed": []}


def _adopt(folder: str) -> None:
    """A staging folder that this host left for another release becomes this one, and further ones
    are removed: most of the code is the same and need not be sent again. The caller holds the job's
    lock."""
    parent, own = os.path.split(folder)
    host_prefix = own.rpartition("-")[0]
    for name in os.listdir(parent):
        if (
            name.rpartition("-")[0] != host_prefix
            or name == own
            or name.endswith(release_manifest.SUFFIX)
        ):
            continue
        other = os.path.join(parent, name)
        if not os.path.isdir(folder):
            os.rename(other, folder)
        remove_staging(other)


def staging_of(call: Call) -> str:
    """The staging folder that a call names, if it is one of this job's."""
    path = call.text("staging")
    folder, name = os.path.split(path)
    if folder != layout.releases_dir(call.context.workdir, call.name("job")) or not name.startswith(
        ".staging-"
    ):
        raise VerbError("bad_name", "%r is no staging folder of this job" % path)
    return path


def begun_of(call: Call) -> Begun:
    """What `begin` has found in this session: another session begins anew. Raises VerbError
    not_begun."""
    folder = staging_of(call)
    begun: Optional[Begun] = call.context.begun.get(folder)
    if begun is None or not os.path.isdir(folder):
        what = "no sync of release %s was begun in this session" % call.name("release")
        raise VerbError("not_begun", what, where=folder)
    return begun


def _make_room(staging: Staging, plan: StagingPlan) -> None:
    """Keeps partial files where there is room for the whole files beside them. Raises VerbError
    disk."""
    try:
        check_room(staging.folder, plan.missing)
    except VerbError:
        if plan.is_new:
            raise
        staging.drop_partial(plan.missing)
        check_room(staging.folder, plan.missing)


VERBS = {"release.missing": list_missing, "release.begin": begin, "release.commit": commit}
