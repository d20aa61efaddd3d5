"""Answers `release.state`: whether a release on this host is as it was committed. This verb has a
module of its own, because most syncs call no other verb of `release.*`.

Compares the kind, size, time and owner of each file. If a file has another time, or if the host has
lost power since it received the release, the content is compared.
"""

from __future__ import annotations

import os
import stat

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Tuple
from tfdeploy.agent.host.file_sum import hash_first_bytes
from tfdeploy.agent.ownership import check_owner
from tfdeploy.agent.seen import OTHERS_WRITE
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.release import manifest as release_manifest
from tfdeploy.agent.serve.release.manifest import ManifestEntry

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

_BUSY = ".nfs"  # prefix of files that were removed on NFS while a process had them open


def is_intact(workdir: str, job: str, release: str) -> bool:
    """Return whether the release is complete and unchanged. Raises UntrustedPath."""
    return not list_damaged_paths(workdir, job, release)


def list_damaged_paths(workdir: str, job: str, release: str) -> List[str]:
    """List the paths of the release that differ from the committed state; an empty list means that
    the release is complete. If only the times of files have changed, the new times are stored.

    Raises UntrustedPath, OSError."""
    folder = layout.release_dir(workdir, job, release)
    path = release_manifest.manifest_path(folder)
    manifest = release_manifest.load_manifest(path)
    if manifest is None or not os.path.isdir(folder):
        return [release]
    may_be_torn = manifest.may_be_torn
    damaged, new_times = compare_files(
        folder, manifest.entries, workdir, compare_contents=may_be_torn
    )
    if (new_times or may_be_torn) and not damaged:
        if may_be_torn:
            from tfdeploy.agent.host.fsync import flush_files

            flush_files(folder, (entry.path for entry in manifest.entries if entry.kind != "link"))
        entries = [
            entry._replace(mtime_ns=new_times.get(entry.path, entry.mtime_ns))
            for entry in manifest.entries
        ]
        release_manifest.save_manifest(
            path,
            entries,
            release=manifest.release,
            time=manifest.time,
            boot=None if may_be_torn else manifest.boot,
        )
    return damaged


def compare_files(
    folder: str, entries: List[ManifestEntry], workdir: str, *, compare_contents: bool
) -> Tuple[List[str], Dict[str, int]]:
    """Compare the files in the folder with the entries of the manifest. With `compare_contents`,
    compare the content of each file; otherwise, only the contents of files whose time has changed.

    Return (damaged paths, {path: time}). A path is damaged if it is missing, differs or is not in
    the manifest. The times are those of the files whose contents were compared. Raises
    UntrustedPath.
    """
    expected = {entry.path: entry for entry in entries}
    damaged: List[str] = []
    new_times: Dict[str, int] = {}
    for path, file_stat in _list_files(folder, workdir):
        entry = expected.pop(path, None)
        if entry is None or not _has_kind_and_size(entry, file_stat, folder):
            damaged.append(path)
        elif entry.kind != "link" and (compare_contents or file_stat.st_mtime_ns != entry.mtime_ns):
            new_times[path] = file_stat.st_mtime_ns
            if hash_first_bytes(os.path.join(folder, path), entry.size, whole=True) != entry.sha256:
                damaged.append(path)
    return sorted([*damaged, *expected]), new_times


def _has_kind_and_size(entry: ManifestEntry, file_stat: os.stat_result, folder: str) -> bool:
    mode = file_stat.st_mode
    if stat.S_ISREG(mode):
        kind = "exec" if mode & stat.S_IXUSR else "file"
        return (entry.size, entry.kind) == (file_stat.st_size, kind)
    return (
        stat.S_ISLNK(mode)
        and entry.kind == "link"
        and os.readlink(os.path.join(folder, entry.path)) == entry.target
    )


def _list_files(root: str, workdir: str) -> List[Tuple[str, os.stat_result]]:
    """Return (path below `root`, stat result) of everything except folders. Raises
    UntrustedPath."""
    files: List[Tuple[str, os.stat_result]] = []
    prefixes = [""]
    own_uid = os.geteuid()
    while prefixes:
        prefix = prefixes.pop()
        with os.scandir(os.path.join(root, prefix)) as entries:
            for entry in entries:
                file_stat = entry.stat(follow_symlinks=False)
                mode = file_stat.st_mode
                if mode & OTHERS_WRITE or file_stat.st_uid != own_uid:
                    check_owner(file_stat, entry.path, workdir)
                if stat.S_ISDIR(mode):
                    prefixes.append(prefix + entry.name + "/")
                elif not entry.name.startswith(_BUSY):
                    files.append((prefix + entry.name, file_stat))
    return files


def report_state(call: Call) -> Answer:
    """Report whether a release is on this host, with exactly the files that were committed.
    Compares the kind, size, time and mode of each file, and the content if the time differs.

    Args: job, release.

    Raises VerbError refused.
    """
    return {"present": is_intact(call.workdir, call.job, call.name("release"))}


VERBS = {"release.state": report_state}
