"""Stores the releases of a job: reads and writes the manifest of each, which lists its files and
links; checks whether a release is as it was committed (`release.state`); and removes old releases
and stale staging folders, except those that a run may still need.

`release.state` is answered here, because most syncs call no other verb of `release.*`. It compares
the kind, size, time and owner of each file. If a file has another time, or if the host has lost
power since it received the release, the content is compared.
"""

from __future__ import annotations

import os
import stat
import time

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Set,
    Tuple,
)
from tfdeploy.agent.call import Call
from tfdeploy.agent.host import atomic, boot_id
from tfdeploy.agent.host.file_sum import hash_first_bytes
from tfdeploy.agent.ownership import check_owner
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.seen import OTHERS_WRITE

if TYPE_CHECKING:
    from typing import Literal

    from tfdeploy.agent.shapes import Answer

SUFFIX = ".json"
VERSION = 1  # version of the stored form
_BUSY = ".nfs"  # prefix of files that were removed on NFS while a process had them open
STALE_S = 86400.0  # a staging folder without a change for this time is removed
KEEP = 5  # how many of a job's newest releases are kept


class ManifestEntry(NamedTuple):
    path: str  # relative, with "/" as separator
    kind: Literal["file", "exec", "link"]
    size: int
    sha256: str  # "" for a link
    target: str  # of a link; "" for files
    # The file's time when the release was committed. If the file has another time later, its
    # content is compared.
    mtime_ns: int = 0


_KINDS = [{str}, {str}, {int}, {str}, {str}, {int}]


class Manifest(NamedTuple):
    """The stored manifest of a release, as in the file releases/<hash>.json."""

    entries: List[ManifestEntry]
    release: Optional[str]
    time: Optional[float]
    # None if the files were flushed to disk; otherwise the boot id of the host when it received
    # them.
    boot: Optional[str] = None

    @property
    def may_be_torn(self) -> bool:
        """True if the host may have lost power before the files reached the disk. The caller must
        then compare the contents of the files with their hashes."""
        return self.boot not in (None, boot_id())


def parent_folders(paths: Iterable[str]) -> Set[str]:
    """Return all folders above these paths, except the root."""
    parents: Set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in parents:
            parents.add(folder)
            folder = folder.rpartition("/")[0]
    return parents


def manifest_path(folder: str) -> str:
    """Return the path of the manifest of a release or of a staging folder."""
    return folder + SUFFIX


def list_manifests_newest_first(folder: str) -> List[str]:
    """List the manifests in a job's folder of releases, newest first."""
    releases = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
                    releases.append((entry.stat().st_mtime_ns, entry.path))
    except FileNotFoundError:
        return []
    return [path for _, path in sorted(releases, reverse=True)]


def newest_release(folder: str) -> Optional[str]:
    """Return the newest release in that folder."""
    return next((path[: -len(SUFFIX)] for path in list_manifests_newest_first(folder)), None)


def remove_manifest(folder: str) -> None:
    """Remove the manifest, so the folder no longer counts as a release. Raises OSError."""
    atomic.remove_file(manifest_path(folder))


def save_manifest(
    path: str,
    entries: List[ManifestEntry],
    *,
    release: Optional[str] = None,
    time: Optional[float] = None,
    boot: Optional[str] = None,
) -> None:
    """Write the manifest. A field that is None is left out. The file is not flushed to disk: a
    release whose manifest is missing or damaged is received again. Raises OSError."""
    record = {"v": VERSION, "entries": entries, "release": release, "time": time, "boot": boot}
    fields = {name: value for name, value in record.items() if value is not None}
    atomic.write_json(path, fields)


def contains_any_hash(path: str, hashes: Iterable[str]) -> bool:
    """Return True if a stored manifest contains one of these SHA-256 hashes. The function searches
    the manifest's text, because parsing the manifest would take longer."""
    try:
        with open(path, "rb") as stream:
            text = stream.read()
    except FileNotFoundError:
        return False
    return any(sha256.encode("ascii") in text for sha256 in hashes)


def load_manifest(path: str) -> Optional[Manifest]:
    """Return what `save_manifest` wrote, or None if the file is missing or damaged."""
    stored = atomic.read_json(path)
    if stored is None:
        return None
    try:
        entries = [ManifestEntry(*row) for row in stored["entries"]]
        kinds = [set(map(type, column)) for column in zip(*entries)]  # noqa: B905 - Python 3.8 lacks strict=
    except (KeyError, TypeError):
        return None
    if kinds and kinds != _KINDS:
        return None
    return Manifest(entries, stored.get("release"), stored.get("time"), stored.get("boot"))


# --- whether a release is as it was committed


def is_intact(workdir: str, job: str, release: str) -> bool:
    """Return whether the release is complete and unchanged. Raises UntrustedPath."""
    return not list_damage_and_store_times(workdir, job, release)


def list_damage_and_store_times(workdir: str, job: str, release: str) -> List[str]:
    """List the paths of the release that differ from the committed state; an empty list means that
    the release is complete. If only the times of files have changed, the new times are stored.

    Raises UntrustedPath, OSError."""
    folder = layout.release_dir(workdir, job, release)
    path = manifest_path(folder)
    manifest = load_manifest(path)
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
        save_manifest(
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
    for path, file_stat in _walk_files(folder, workdir):
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


def _walk_files(root: str, workdir: str) -> Iterator[Tuple[str, os.stat_result]]:
    """Yield (path below `root`, stat result) of everything except folders. Raises
    UntrustedPath."""
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
                    yield prefix + entry.name, file_stat


def report_state(call: Call) -> Answer:
    """Report whether a release is on this host, with exactly the files that were committed.
    Compares the kind, size and time of each file. The content is compared too if the time differs,
    or if the host may have lost power before the files reached the disk.

    Args: job, release.

    Raises VerbError refused.
    """
    return {"present": is_intact(call.workdir, call.job, call.name("release"))}


# --- which releases are kept


def remove_old_releases(workdir: str, job: str, current: str) -> None:
    """Remove all releases except `current`, the KEEP newest and those in use. Also removes
    staging folders that are older than STALE_S."""
    folder = layout.releases_dir(workdir, job)
    newest, staging = _releases_and_staging(folder)
    stale = {name for name, changed in staging.items() if changed < time.time() - STALE_S}
    for name in stale | _unused_beyond_newest(workdir, job, newest, KEEP) - {current}:
        _remove_release(os.path.join(folder, name))


def reuse_oldest_as_staging(workdir: str, job: str, release: str, staging: str) -> None:
    """Rename the oldest unused release to `staging`, the folder in which `release` will be
    received. The two releases usually share most files. These stay in the folder as hard links, so
    they need not be removed and made again.

    Do nothing if `staging` exists, or if fewer than KEEP releases are stored.
    """
    folder = layout.releases_dir(workdir, job)
    newest = _releases_and_staging(folder)[0]
    surplus = _unused_beyond_newest(workdir, job, newest, KEEP - 1) - {release}
    oldest = next((os.path.join(folder, name) for name in newest[::-1] if name in surplus), None)
    if oldest is not None and not os.path.isdir(staging):
        remove_manifest(oldest)
        try:
            os.rename(oldest, staging)
        except FileNotFoundError:
            pass  # another host that shares the workdir has removed the release


def list_surplus_releases(workdir: str, job: str) -> Set[str]:
    """Return the releases that are neither among the KEEP newest nor in use. Raises OSError if a
    run cannot be read, because that run may use any release."""
    return _unused_beyond_newest(
        workdir, job, _releases_and_staging(layout.releases_dir(workdir, job))[0], KEEP
    )


def _unused_beyond_newest(
    workdir: str, job: str, newest_first: List[str], keep_count: int
) -> Set[str]:
    if not newest_first[keep_count:]:
        return set()
    # This import is not at the top, because the first sync of a job does not need the module, and
    # Python would have to compile it during that sync.
    from tfdeploy.agent.run import unended

    return set(newest_first[keep_count:]) - set(unended.releases_in_use(workdir, job))


def _releases_and_staging(folder: str) -> Tuple[List[str], Dict[str, float]]:
    """Return two values: the names of the releases, newest first, and {name: time of the last
    change} of the hidden folders, which are staging folders."""
    times: Dict[str, float] = {}
    for entry in os.scandir(folder):
        name = entry.name[: -len(SUFFIX)] if entry.name.endswith(SUFFIX) else entry.name
        times[name] = max(times.get(name, 0.0), _mtime(entry.path))
    staging = {name: changed for name, changed in times.items() if name.startswith(".")}
    newest_first = sorted(times.keys() - staging.keys(), key=times.__getitem__, reverse=True)
    return newest_first, staging


def _mtime(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0  # another host that shares the workdir has removed it


def _remove_release(release: str) -> None:
    # The manifest is removed first, so that a partly removed folder does not count as a release.
    remove_manifest(release)
    remove_folder(release)


def remove_folder(path: str) -> None:
    """Remove the folder if it exists."""
    if os.path.lexists(path):
        from shutil import rmtree  # imported only if there is something to remove

        rmtree(path, ignore_errors=True)


VERBS = {"release.state": report_state}
