"""Where a release is made, how it gets its name when it is whole, and whether there is room for it."""

from __future__ import annotations

import errno
import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import List
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.disk import free_of
from tfdeploy.agent.host.fsync import flush_folder
from tfdeploy.agent.serve import release_manifest
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.release_manifest import Entry
from tfdeploy.agent.serve.release_retention import remove_folder

KEEP = 5


def staging_path(call: Call) -> str:
    here = ".".join(word for word in (os.uname().nodename, call.context.host) if word)  # clones have one hostname
    name = ".staging-%s-%s" % (here, call.name("release"))
    return os.path.join(layout.releases_dir(call.context.workdir, call.name("job")), name)


def switch(staging: str, final: str) -> None:
    """Moves the staging folder to `final`. A damaged release there is removed: runs have copies of their own."""
    aside = os.path.join(os.path.dirname(final), ".damaged-%s" % os.urandom(6).hex())
    try:
        os.rename(final, aside)
    except FileNotFoundError:
        pass
    try:
        os.rename(staging, final)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        remove_staging(staging)  # another host of a shared workdir was first, with the same content
    flush_folder(os.path.dirname(final))
    remove_folder(aside)


def remove_staging(folder: str) -> None:
    remove_folder(folder)
    release_manifest.forget(folder)


def check_room(folder: str, missing: List[Entry]) -> None:
    needed, free = sum(entry.size for entry in missing), free_of(folder)
    free_bytes, free_inodes = free["free_bytes"], free["free_inodes"]
    details = {"needed_bytes": needed, "needed_inodes": len(missing)}
    if needed > free_bytes:
        what = "the code needs %d bytes more, and %d are free" % (needed, free_bytes)
    elif free_inodes is not None and len(missing) > free_inodes:
        what = "the code needs %d inodes more, and %d are free" % (len(missing), free_inodes)
    else:
        return
    raise VerbError("disk", what, where=folder, advice="free_inodes", details=dict(details, **free))
