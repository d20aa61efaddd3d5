"""`release.state`: whether a release is there as it was committed. A module of its own: most syncs
need no other verb.

Compares the kind, size, time and owner of each file. Where the time differs, the content counts.
"""

from __future__ import annotations

import os
import stat

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Tuple
from tfdeploy.agent.host.file_sum import of_first
from tfdeploy.agent.ownership import check_owner
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.seen import OTHERS_WRITE
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.release import manifest as release_manifest
from tfdeploy.agent.serve.release.manifest import Entry

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

_BUSY = ".nfs"  # NFS: a file that was removed while a process had it open


class Found(NamedTuple):
    # paths that are missing, are not what was committed, or were never part of it
    damaged: List[str]
    touched: Dict[str, int]  # path -> its new time, where the content is still right


def is_present(workdir: str, job: str, release: str) -> bool:
    """Raises NotOurs."""
    return not damage(workdir, job, release)


def damage(workdir: str, job: str, release: str) -> List[str]:
    """Its paths that are not as committed; none: it is there and whole. Stores changed times of
    right files. Raises NotOurs."""
    folder = layout.release_dir(workdir, job, release)
    manifest = release_manifest.load(release_manifest.path_of(folder))
    if manifest is None or not os.path.isdir(folder):
        return [release]
    differences = compare(folder, manifest.entries, workdir)
    if differences.touched and not differences.damaged:
        entries = [
            entry._replace(mtime_ns=differences.touched.get(entry.path, entry.mtime_ns))
            for entry in manifest.entries
        ]
        release_manifest.save(
            release_manifest.path_of(folder), entries, release=manifest.release, time=manifest.time
        )
    return differences.damaged


def compare(folder: str, entries: List[Entry], workdir: str) -> Found:
    """Raises NotOurs."""
    expected = {entry.path: entry for entry in entries}
    damaged: List[str] = []
    touched: Dict[str, int] = {}
    for path, file_stat in _files(folder, workdir):
        entry = expected.pop(path, None)
        if entry is None or not _fits(entry, file_stat, folder):
            damaged.append(path)
        elif file_stat.st_mtime_ns != entry.mtime_ns and entry.kind != "link":
            touched[path] = file_stat.st_mtime_ns
            if of_first(os.path.join(folder, path), entry.size, whole=True) != entry.sha256:
                damaged.append(path)
    return Found(sorted([*damaged, *expected]), touched)


def _fits(entry: Entry, file_stat: os.stat_result, folder: str) -> bool:
    mode = file_stat.st_mode
    if stat.S_ISREG(mode):
        return file_stat.st_size == entry.size and entry.kind == (
            "exec" if mode & stat.S_IXUSR else "file"
        )
    return (
        stat.S_ISLNK(mode)
        and entry.kind == "link"
        and os.readlink(os.path.join(folder, entry.path)) == entry.target
    )


def _files(root: str, workdir: str) -> List[Tuple[str, os.stat_result]]:
    """All that is no folder, by its path below `root`. Raises NotOurs."""
    files: List[Tuple[str, os.stat_result]] = []
    prefixes = [""]
    own = os.geteuid()
    while prefixes:
        prefix = prefixes.pop()
        with os.scandir(os.path.join(root, prefix)) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                mode = about.st_mode
                if mode & OTHERS_WRITE or about.st_uid != own:
                    check_owner(about, entry.path, workdir)
                if stat.S_ISDIR(mode):
                    prefixes.append(prefix + entry.name + "/")
                elif not entry.name.startswith(_BUSY):
                    files.append((prefix + entry.name, about))
    return files


def state(call: Call) -> Answer:
    """Say whether a release is here, every file as committed and nothing else: by one look at its
    kind, size, time and mode, and by its content where the time differs.

    Args: job, release.

    Raises VerbError refused.
    """
    return {"present": is_present(call.context.workdir, call.name("job"), call.name("release"))}


VERBS = {"release.state": state}
