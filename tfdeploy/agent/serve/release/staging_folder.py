"""Names the staging folder of a release, installs a complete release, and checks the free space."""

from __future__ import annotations

import errno
import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import List
from tfdeploy.agent.host.disk import require_space
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.release import manifest as release_manifest
from tfdeploy.agent.serve.release.manifest import ManifestEntry
from tfdeploy.agent.serve.release.retention import remove_folder


def staging_path(call: Call) -> str:
    # Cloned hosts share a hostname, so the host's name in the inventory is part of the id.
    host_id = ".".join(name_part for name_part in (os.uname().nodename, call.host) if name_part)
    name = ".staging-%s-%s" % (host_id, call.name("release"))
    return os.path.join(layout.releases_dir(call.workdir, call.job), name)


def install_staging_folder(staging: str, final: str) -> None:
    """Rename the staging folder to `final`. A damaged release at `final` is removed first. Runs do
    not need that release, because each run has a copy of its own."""
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
        # Another host that shares the workdir has installed the same content first.
        remove_staging(staging)
    remove_folder(aside)


def remove_staging(folder: str) -> None:
    remove_folder(folder)
    release_manifest.remove_manifest(folder)


def check_space(folder: str, missing: List[ManifestEntry]) -> None:
    require_space(
        folder, "the code", sum(entry.size for entry in missing), needed_inodes=len(missing)
    )
