"""`release.*`: one content of the code becomes a folder named by its hash, in one rename.

It is received in a staging folder that outlives a broken sync: files are hard links to an older release where their content
is the same, else rsync brings them; symbolic links are made here. Nothing is ever written into a finished release.
"""

from __future__ import annotations

import os
import time

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.fsync import flush
from tfdeploy.agent.serve import release_manifest
from tfdeploy.agent.serve.call import Call, audited, fenced
from tfdeploy.agent.serve.release_place import KEEP, check_room, remove_staging, staging_path, switch
from tfdeploy.agent.serve.release_retention import remove_old
from tfdeploy.agent.serve.release_staging import Staging, StagingPlan
from tfdeploy.agent.serve.release_state import is_present

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer


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
        missing = [entry.path for entry in plan.missing + staging.fill(plan)]
        lent = sorted(plan.sources.keys() - set(missing))
        release_manifest.save(release_manifest.path_of(folder), entries, received=missing, lent=lent)
    except (VerbError, OSError):
        if plan.is_new:
            remove_staging(folder)
        raise
    from shutil import which

    return {"staging": folder, "missing": missing, "linked": len(lent), "rsync": which("rsync") is not None}


@fenced
@audited("sync", "sent")
def commit(call: Call) -> Answer:
    """Check a staged release against its manifest, and flush it and put it in place if all of it is
    right, also in place of a damaged one.

    Args: job, release, staging, keep_releases?.

    Raises VerbError not_begun.
    """
    workdir, job, release = call.context.workdir, call.name("job"), call.name("release")
    folder, final = staging_of(call), layout.release_dir(workdir, job, release)
    if not is_present(workdir, job, release):
        begun = release_manifest.load(release_manifest.path_of(folder))
        if begun is None or not os.path.isdir(folder):
            raise VerbError("not_begun", "no sync of release %s was begun here" % release, where=folder)
        staging = Staging(folder, begun.entries)
        changed = staging.changed(set(begun.received))
        if changed:
            return {"changed": changed}
        staging.finish(set(begun.lent))
        flush(folder, begun.received)
        stamped = staging.stamped()
        release_manifest.save(release_manifest.path_of(final), stamped, durable=True, release=release, time=time.time())
        switch(folder, final)
    remove_staging(folder)
    remove_old(workdir, job, release, max(1, call.integer("keep_releases", KEEP)))
    return {"changed": []}


def _adopt(folder: str) -> None:
    """A staging folder that this host left for another release becomes this one, and further ones are removed: most of the code
    is the same and need not be sent again. The caller holds the job's lock."""
    parent, own = os.path.split(folder)
    host_prefix = own.rpartition("-")[0]
    for name in os.listdir(parent):
        if name.rpartition("-")[0] != host_prefix or name == own or name.endswith(release_manifest.SUFFIX):
            continue
        other = os.path.join(parent, name)
        if not os.path.isdir(folder):
            os.rename(other, folder)
        remove_staging(other)


def staging_of(call: Call) -> str:
    """The staging folder that a call names, if it is one of this job's."""
    path = call.text("staging")
    folder, name = os.path.split(path)
    if folder != layout.releases_dir(call.context.workdir, call.name("job")) or not name.startswith(".staging-"):
        raise VerbError("bad_name", "%r is no staging folder of this job" % path)
    return path


def _make_room(staging: Staging, plan: StagingPlan) -> None:
    """Keeps partial files where there is room for the whole files beside them. Raises VerbError disk."""
    try:
        check_room(staging.folder, plan.missing)
    except VerbError:
        if plan.is_new:
            raise
        staging.drop_partial(plan.missing)
        check_room(staging.folder, plan.missing)


VERBS = {"release.begin": begin, "release.commit": commit}
