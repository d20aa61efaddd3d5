"""Answers `release.state`: whether a release on this host is as it was committed. This verb has a
module of its own, because most syncs call no other verb of `release.*`.

Compares the kind, size, time and owner of each file. If only a file's time differs, its content is
compared.
"""

from __future__ import annotations

import os
import stat

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Tuple
from tfdeploy.agent.host.file_sum import hash_first_bytes
from tfdeploy.agent.ownership import check_owner
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.seen import OTHERS_WRITE
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.release import manifest as release_manifest
from tfdeploy.agent.serve.release.manifest import Entry

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

_BUSY = ".nfs"  # prefix of files that were removed on NFS while a process had them open


class Differences(NamedTuple):
    # paths that are missing, that differ from the committed release, or that do not belong to it
    damaged: List[str]
    touched: Dict[str, int]  # path -> new time, for each file whose time has changed


def is_present(workdir: str, job: str, release: str) -> bool:
    """Return whether the release is complete and unchanged. Raises NotOurs."""
    return not list_damaged(workdir, job, release)


def list_damaged(workdir: str, job: str, release: str) -> List[str]:
    """List the paths of the release that differ from the committed state; an empty list means that
    the release is complete. If only the times of files have changed, the new times are stored.
    Raises NotOurs."""
    folder = layout.release_dir(workdir, job, release)
    manifest = release_manifest.load_manifest(release_manifest.manifest_path(folder))
    if manifest is None or not os.path.isdir(folder):
        return [release]
    differences = compare_files(folder, manifest.entries, workdir)
    if differences.touched and not differences.damaged:
        entries = [
            entry._replace(mtime_ns=differences.touched.get(entry.path, entry.mtime_ns))
            for entry in manifest.entries
        ]
        release_manifest.save_manifest(
            release_manifest.manifest_path(folder),
            entries,
            release=manifest.release,
            time=manifest.time,
        )
    return differences.damaged


def compare_files(folder: str, entries: List[Entry], workdir: str) -> Differences:
    """Compare the files in the folder with the entries of the manifest. Raises NotOurs."""
    expected = {entry.path: entry for entry in entries}
    damaged: List[str] = []
    touched: Dict[str, int] = {}
    for path, file_stat in _list_files(folder, workdir):
        entry = expected.pop(path, None)
        if entry is None or not _has_kind_and_size(entry, file_stat, folder):
            damaged.append(path)
        elif file_stat.st_mtime_ns != entry.mtime_ns and entry.kind != "link":
            touched[path] = file_stat.st_mtime_ns
            if hash_first_bytes(os.path.join(folder, path), entry.size, whole=True) != entry.sha256:
                damaged.append(path)
    return Differences(sorted([*damaged, *expected]), touched)


def _has_kind_and_size(entry: Entry, file_stat: os.stat_result, folder: str) -> bool:
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


def _list_files(root: str, workdir: str) -> List[Tuple[str, os.stat_result]]:
    """Return (path below `root`, stat result) of everything except folders. Raises NotOurs."""
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


def report_state(call: Call) -> Answer:
    """Report whether a release is on this host, with exactly the files that were committed.
    Compares the kind, size, time and mode of each file, and the content if the time differs.

    Args: job, release.

    Raises VerbError refused.
    """
    return {"present": is_present(call.context.workdir, call.name("job"), call.name("release"))}


VERBS = {"release.state": report_state}
