"""Answers `release.*`: receives one state of the code (a release) in a staging folder, and then
renames this folder to the hash of the code.

The staging folder outlives an interrupted sync. Files that an older release already has become hard
links, and symbolic links are made on this host. The other files arrive by rsync, by a broadcast, or
in the blob of `release.commit`. The blob has them in the order in which `release.begin` listed
them, and SSH protects its integrity. A manifest with a path that could lead out of the release is
refused. A finished release is never written to.
"""

from __future__ import annotations

import errno
import os
import time
import zlib

from tfdeploy.agent import json_text, layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Iterable, List, Optional, Set, Tuple
from tfdeploy.agent.call import Call, audited, requires_job_lock
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import boot_id
from tfdeploy.agent.host.atomic import write_all
from tfdeploy.agent.host.disk import require_space
from tfdeploy.agent.serve.release import store as release_store
from tfdeploy.agent.serve.release.staging import BegunRelease, Staging, StagingPlan
from tfdeploy.agent.serve.release.store import (
    ManifestEntry,
    is_intact,
    parent_folders,
    remove_folder,
    remove_old_releases,
    reuse_oldest_as_staging,
)

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

MOST_CONTENT_BYTES = 96 << 20  # limit of the unpacked contents
TIME_BYTES = 32  # greatest length of one file's time in the JSON list, in characters
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_MODES = {"file": 0o644, "exec": 0o755}  # modes before the umask is applied
MOST_MANIFEST_BYTES = 512 << 20  # limit of an unpacked manifest, enough for a million files
_HEX = "0123456789abcdef"
_ROW = [str, str, int, str, str]  # types of the values of an entry, as they are sent


def list_missing_files(call: Call) -> Answer:
    """List the files that release.begin would ask for. Changes nothing.

    Args: job, release; blob: as for release.begin.

    Raises VerbError bad_manifest.
    """
    plan = Staging(staging_path(call), unpack_manifest(call.blob)).plan()
    return {"missing": [entry.path for entry in plan.missing]}


@requires_job_lock
def begin_release(call: Call) -> Answer:
    """Begin to receive a release: link the files that older releases already have, and list the
    missing ones.

    Args: job, release; blob: zlib of the JSON [[path, kind, size, sha256, target], ...].

    Raises VerbError bad_manifest, disk (details needed_bytes, free_bytes; nothing is left behind).
    """
    entries = unpack_manifest(call.blob)
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
            staging.entries_with_times(plan), [entry.path for entry in plan.missing], plan.is_new
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
    """Install a staged release. A damaged release with the same name is replaced. The content of
    the files is not hashed again, because rsync, the broadcast or SSH has verified it. The files
    are not flushed to disk either: if the host loses power, the next release.state hashes them.

    Args: job, release, staging; blob: the missing files, if they did not come by rsync or
    broadcast. The blob is zlib of: the JSON list of their mtime_ns, a newline, and their contents
    in the order of `missing`.

    Raises VerbError not_begun (in this session), bad_manifest.
    """
    workdir, job, release = call.workdir, call.job, call.name("release")
    folder, final = checked_staging_path(call), layout.release_dir(workdir, job, release)
    if not is_intact(workdir, job, release):
        begun = find_release_begun_in_session(call)
        staging = Staging(folder, begun.entries)
        if call.blob:
            entries = write_missing_files(folder, begun.entries, begun.missing, call.blob)
            # In a new folder there are only files that this call has written.
            if not begun.is_new:
                staging.remove_unlisted_files(keep_partial=False)
        else:
            entries, changed = staging.finish_received(set(begun.missing))
            if changed:
                return {"changed": changed}
        path = release_store.manifest_path(final)
        release_store.save_manifest(
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
        is_manifest = name.endswith(release_store.SUFFIX)
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


def find_release_begun_in_session(call: Call) -> BegunRelease:
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


# --- the staging folder


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
    release_store.remove_manifest(folder)


def check_space(folder: str, missing: List[ManifestEntry]) -> None:
    require_space(
        folder, "the code", sum(entry.size for entry in missing), needed_inodes=len(missing)
    )


# --- the files that arrive with the commit


def write_missing_files(
    folder: str, entries: List[ManifestEntry], missing: List[str], blob: bytes
) -> List[ManifestEntry]:
    """Write the missing files. Return all entries; those of the written files now have the files'
    times.

    The blob is the zlib of the JSON list of these times (mtime_ns), a newline, and the contents.
    Raises VerbError bad_manifest, OSError.
    """
    by_path = {entry.path: entry for entry in entries}
    wanted = [by_path[path] for path in missing]
    times, contents = _unpack_contents(blob, wanted)
    root, offset = os.open(folder, os.O_RDONLY | os.O_DIRECTORY), 0
    try:
        for entry, mtime_ns in zip(wanted, times):  # noqa: B905 - Python 3.8 lacks strict=
            _write_file(root, entry, contents[offset : offset + entry.size], mtime_ns)
            offset += entry.size
    except OSError as error:
        error.filename = folder  # the error then names a path on the full disk
        raise
    finally:
        os.close(root)
    for entry, mtime_ns in zip(wanted, times):  # noqa: B905
        by_path[entry.path] = ManifestEntry(*entry[:-1], mtime_ns)  # faster than _replace
    return list(by_path.values())


def _unpack_contents(blob: bytes, entries: List[ManifestEntry]) -> Tuple[List[int], memoryview]:
    size = sum(entry.size for entry in entries)
    unpacker = zlib.decompressobj()
    try:
        max_bytes = min(size, MOST_CONTENT_BYTES) + TIME_BYTES * (len(entries) + 1)
        text, _, contents = unpacker.decompress(blob, max_bytes).partition(b"\n")
        times = json_text.loads(text)
    except (zlib.error, ValueError) as error:
        raise VerbError("bad_manifest", "the files cannot be unpacked: %s" % error) from error
    if not unpacker.eof or len(contents) != size:
        raise VerbError("bad_manifest", "the files do not have the lengths that were announced")
    if not isinstance(times, list) or [*map(type, times)] != [int] * len(entries):
        raise VerbError(
            "bad_manifest", "the list of modification times does not fit the list of files"
        )
    return times, memoryview(contents)


def _write_file(root: int, entry: ManifestEntry, content: memoryview, mtime_ns: int) -> None:
    """Write one file. Always creates a new file, because an existing one may be a hard link into an
    older release."""
    mode = _MODES[entry.kind]
    try:
        descriptor = os.open(entry.path, _FLAGS, mode, dir_fd=root)
    except FileExistsError:
        os.unlink(entry.path, dir_fd=root)
        descriptor = os.open(entry.path, _FLAGS, mode, dir_fd=root)
    try:
        write_all(descriptor, content)
        os.utime(descriptor, ns=(mtime_ns, mtime_ns))
    finally:
        os.close(descriptor)


# --- the manifest in a call


def unpack_manifest(blob: bytes) -> List[ManifestEntry]:
    """Unpack the manifest that a call of release.begin sends. Raises VerbError bad_manifest."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(blob, MOST_MANIFEST_BYTES)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise VerbError(
                "bad_manifest",
                "the manifest is cut off or larger than %d bytes" % MOST_MANIFEST_BYTES,
            )
        entries = [_parse_entry(row) for row in json_text.loads(text)]
    except (zlib.error, ValueError, TypeError) as error:
        raise VerbError("bad_manifest", "the manifest cannot be read: %s" % error) from error
    check_entries(entries)
    return entries


def _parse_entry(row: Any) -> ManifestEntry:
    """Parse [path, kind, bytes, sha256, target]. Raises ValueError, TypeError."""
    entry = ManifestEntry(*row)
    if [*map(type, row)] != _ROW or entry.size < 0:
        raise ValueError("an entry is not [path, kind, size, sha256, target]: %.200r" % (row,))
    return entry


def check_entries(entries: Iterable[ManifestEntry]) -> None:
    """Check that every path stays inside the release, occurs once, and passes only through folders.
    Raises VerbError bad_manifest."""
    leaves: Set[str] = set()
    for entry in entries:
        steps = "/%s/" % entry.path
        if "//" in steps or "/./" in steps or "/../" in steps or "\0" in steps + entry.target:
            raise VerbError("bad_manifest", "the path %r leads out of the release" % entry.path)
        if entry.path in leaves:
            raise VerbError("bad_manifest", "the path %r occurs twice" % entry.path)
        if entry.kind == "link":
            if entry.sha256 or not entry.target:
                raise VerbError("bad_manifest", "%r is not a link with a target" % entry.path)
        elif entry.kind not in ("file", "exec"):
            raise VerbError("bad_manifest", "%r is of no known kind" % entry.path)
        elif len(entry.sha256) != 64 or entry.sha256.strip(_HEX):
            raise VerbError("bad_manifest", "%r has no sha256" % entry.path)
        leaves.add(entry.path)
    for folder in parent_folders(leaves):
        if folder in leaves:
            raise VerbError(
                "bad_manifest", "%r is no folder, but other paths lead through it" % folder
            )


VERBS = {
    "release.missing": list_missing_files,
    "release.begin": begin_release,
    "release.commit": commit_release,
}
