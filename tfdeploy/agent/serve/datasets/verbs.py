"""Answers `data.*`: makes and checks the folders of data sets, and installs new versions. Beside
such a folder, a marker file says that tfdeploy made the folder, and a record says that the data set
is complete (datasets/versions.py).

A broadcast or rsync fills a staging folder (datasets/files.py). Once all its files are complete,
they replace the content of the data set's folder. If a live run reads that folder, the new version
is built beside it. An interrupted installation is resumed: files that are already in the folder
count as present, and the others are still in the staging folder.

A folder without the marker file is never touched.
"""

from __future__ import annotations

import os
import shutil
import stat
from array import array

from tfdeploy.agent import bitmap, listing, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, List, Optional
from tfdeploy.agent.bitmap import is_marked, marked_numbers
from tfdeploy.agent.call import Call, audited, requires_job_lock
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import removal
from tfdeploy.agent.host.atomic import create_empty
from tfdeploy.agent.host.fsync import flush_files
from tfdeploy.agent.listing import FILE, FOLDER, LINK, NOT_LINKED, Listing, Row
from tfdeploy.agent.serve.datasets import files as data_files
from tfdeploy.agent.serve.datasets import versions as data_versions
from tfdeploy.agent.serve.datasets.files import (
    Staging,
    data_folder,
    translate_special_file,
    walk_folder,
)

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer, DataRecord

_OTHERS_WRITE = 0o022


def report_state(call: Call) -> Optional[Answer]:
    """First install a new version of the data set that is waiting, unless a live run still reads
    the old version. Then describe the data set, if it is complete.

    Args: job, name.
    """
    folder = data_folder(call)
    data_versions.install_next_version(call.workdir, call.job, call.name("name"))
    newest = data_versions.newest_version_folder(folder)
    record = data_versions.read_record(newest)
    if record is None or not os.path.isdir(newest):
        return None
    return {
        "digest": folder_digest(newest),
        "attributes": record["attributes"],
        "parts": data_files.parts_digest(record["parts"]),
    }


@requires_job_lock
def begin_sync(call: Call) -> Answer:
    """Begin to receive a new version of a data set, and report what this host lacks of it. The new
    version is stored beside the data set, which does not change meanwhile.

    Args: job, name, reserve?; blob: a packed Listing.

    Raises VerbError bad_listing, not_ours, disk.
    """
    folder = data_folder(call)
    _refuse_foreign_folder(folder)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    data_versions.mark_sync_begun(folder)
    staging = Staging(folder)
    lacking, staged = staging.begin(call.blob, call.integer("reserve"))
    wanted = staging.read_listing()
    return {
        "lacking": bitmap.pack(lacking),
        "lacking_bytes": sum(wanted.sizes[row] for row in bitmap.marked_numbers(lacking)),
        "folder_id": data_versions.folder_id(folder),
        "staging": staging.new_folder,
        "staged": bitmap.pack(staged),
        "present": staging.old_folder if os.path.isdir(staging.old_folder) else None,
    }


def count_files_to_remove(call: Call) -> Answer:
    """Return {"files": how many files the data set has now, "losing": how many of them a sync would
    remove}. A sync removes each file whose path is not in the blob. Both numbers are 0 if there is
    no data set, or if its content already matches `digest`. Changes nothing.

    Args: job, name, digest; blob: for each path that would arrive, the 8-byte BLAKE2b hash of the
    path.

    Raises VerbError not_ours (tfdeploy did not make the folder).
    """
    folder = data_folder(call)
    _refuse_foreign_folder(folder)
    record = data_versions.read_record(folder)
    digest = "" if record is None else record["digest"]
    if not os.path.isdir(folder) or digest == call.text("digest"):
        return {"files": 0, "losing": 0}
    hash_bytes = wire.NAME_KEY_BYTES
    arriving_hashes = {
        call.blob[start : start + hash_bytes] for start in range(0, len(call.blob), hash_bytes)
    }
    paths = [os.fsdecode(row.path) for row in walk_folder(folder) if row.kind != FOLDER]
    losing = (
        sum(wire.hash_path(path) not in arriving_hashes for path in paths) if arriving_hashes else 0
    )
    return {"files": len(paths), "losing": losing}


def _refuse_foreign_folder(folder: str) -> None:
    """Refuse a folder that tfdeploy did not make. Raises VerbError not_ours."""
    if os.path.lexists(folder) and (
        not data_versions.is_made_by_tfdeploy(folder)
        or os.path.islink(folder)
        or not os.path.isdir(folder)
    ):
        raise VerbError(
            "not_ours",
            "%s exists and was not made by tfdeploy" % folder,
            where=folder,
            advice="another_data_name",
        )


@requires_job_lock
@audited("sync", "sent")
def commit_sync(call: Call) -> Answer:
    """Install the files in the staging folder, and record the data set as complete if its content
    is the expected one. Normally, the files are moved into the data set's folder. If a live run
    reads the data set and its content changes, the new version is built in a new folder beside it.

    Args: job, name, parts? (how many parts there are); blob: zlib of the part numbers of all rows
    of the listing, two bytes each.

    Raises VerbError not_begun.
    """
    folder = data_folder(call)
    staging = Staging(folder)
    wanted = staging.read_listing()
    lacking = staging.find_lacking_rows(wanted)
    if list_unstaged_files(staging, wanted, lacking):
        return {"digest": "", "ok": False}
    digest, attributes = wanted.digest(), wanted.attributes_digest()
    old = data_versions.read_record(staging.old_folder)
    is_recorded = old is not None and (old["digest"], old["attributes"]) == (digest, attributes)
    if not is_recorded and data_versions.has_live_run(call.workdir, call.job, call.name("name")):
        target = data_versions.hidden_sibling_path(folder, data_versions.NEXT)
        building = data_versions.hidden_sibling_path(folder, "building")
        new = build_new_version_folder(staging, wanted, lacking, building)
        data_versions.remove_record(target)
        removal.remove(target)
        os.rename(building, target)
    else:
        target = staging.old_folder
        data_versions.remove_record(target)
        new = update_old_folder_in_place(staging, wanted, lacking)
    actual_digest = folder_digest(target)
    ok = actual_digest == digest
    if ok:
        flush_files(target, (os.fsdecode(wanted.path(row)) for row in new))
        parts = data_files.encode_part_numbers(call.integer("parts"), call.blob)
        record: DataRecord = {"digest": digest, "attributes": attributes, "parts": parts}
        data_versions.write_record(target, record)
        staging.remove()
    return {"digest": actual_digest, "ok": ok}


def folder_digest(folder: str) -> str:
    """Return the digest of the folder's state (Listing.digest). Raises VerbError strange if an
    entry is neither a file, a link nor a folder."""
    with translate_special_file():
        return listing.digest(listing.rows_in(folder))


# --- the installation of a new version


def list_unstaged_files(
    staging: Staging, wanted: Listing, lacking_bitmap: bytearray
) -> List[bytes]:
    """Return the paths of the files that this host lacks and that are not complete in the staging
    folder."""
    folder, incomplete = os.fsencode(staging.new_folder), []
    for row in map(wanted.__getitem__, marked_numbers(lacking_bitmap)):
        try:
            status = os.lstat(os.path.join(folder, row.path))
            size_and_time = status.st_size, status.st_mtime_ns
            is_complete = stat.S_ISREG(status.st_mode) and size_and_time == (row.size, row.mtime_ns)
        except (FileNotFoundError, NotADirectoryError):
            is_complete = False
        if row.size and not is_complete:
            incomplete.append(row.path)
    return incomplete


def update_old_folder_in_place(
    staging: Staging, wanted: Listing, lacking_bitmap: bytearray
) -> "array[int]":
    """Turn the folder with the old version into the new version. Return the numbers of those rows
    of the listing whose files are new. Raises OSError."""
    root = os.fsencode(staging.old_folder)
    current = listing.walk(staging.old_folder) if os.path.isdir(staging.old_folder) else Listing()
    os.makedirs(root, mode=0o700, exist_ok=True)
    _make_folders_writable(root, current)
    new = array("Q")
    for i, j in listing.match_rows(wanted, current):
        old = current[j] if j is not None else None
        if i is None:
            if old is not None and old.path:
                _remove_if_exists(os.path.join(root, old.path))
            continue
        row = wanted[i]
        path = os.path.join(root, row.path)
        if old is not None and old.kind != row.kind:
            _remove_if_exists(path)
            old = None
        if row.kind == FILE and is_marked(lacking_bitmap, i):
            _move_staged_file(staging, row, path)
            new.append(i)
        elif row.same_as != NOT_LINKED:
            _ensure_hard_link(os.path.join(root, wanted.path(row.same_as)), path)
        else:
            _make_folder_or_link(row, old, path)
    _set_attributes(root, wanted)
    return new


def build_new_version_folder(
    staging: Staging, wanted: Listing, lacking_bitmap: bytearray, folder: str
) -> "array[int]":
    """Build the new version in a new folder, with hard links to unchanged files of the old version.
    Return the numbers of those rows of the listing whose files are new."""
    root, old = os.fsencode(folder), os.fsencode(staging.old_folder)
    removal.remove(folder)
    os.mkdir(root, 0o700)
    new = array("Q")
    for i, row in enumerate(wanted):
        path = os.path.join(root, row.path)
        if row.same_as != NOT_LINKED:
            _ensure_hard_link(os.path.join(root, wanted.path(row.same_as)), path)
        elif row.kind == FILE and is_marked(lacking_bitmap, i):
            if row.size:
                os.link(
                    os.path.join(os.fsencode(staging.new_folder), row.path),
                    path,
                    follow_symlinks=False,
                )
            else:
                create_empty(path)
            new.append(i)
        elif row.kind == FILE:
            _link_or_copy(os.path.join(old, row.path), path, row)
        else:
            _make_folder_or_link(row, None, path)
    _set_attributes(root, wanted)
    return new


def _link_or_copy(old: bytes, path: bytes, row: Row) -> None:
    """Make a hard link to the old file. If the file's mode has to change, copy the file instead, so
    that a live run does not see the change."""
    if stat.S_IMODE(os.lstat(old).st_mode) == row.mode:
        os.link(old, path, follow_symlinks=False)
    else:
        shutil.copy2(old, path, follow_symlinks=False)


def _make_folders_writable(root: bytes, current: Listing) -> None:
    """Let the owner write to folders that are read-only. `_set_attributes` sets their final modes
    at the end."""
    for row in current:
        if row.kind == FOLDER and row.mode & 0o700 != 0o700:
            os.chmod(os.path.join(root, row.path), row.mode | 0o700)


def _move_staged_file(staging: Staging, row: Row, path: bytes) -> None:
    if row.size:
        os.replace(os.path.join(os.fsencode(staging.new_folder), row.path), path)
    else:
        _remove_if_exists(path)
        create_empty(path)


def _ensure_hard_link(original: bytes, path: bytes) -> None:
    """Make `path` a hard link to `original`, unless it already is one."""
    try:
        if os.path.samestat(os.lstat(original), os.lstat(path)):
            return
        _remove_if_exists(path)
    except FileNotFoundError:
        pass
    os.link(original, path, follow_symlinks=False)


def _make_folder_or_link(row: Row, old: Optional[Row], path: bytes) -> None:
    """Make the folder or link that the row describes, if it is missing or differs. A row that
    describes a file is ignored."""
    if row.kind == FOLDER and old is None and row.path:
        os.mkdir(path, 0o700)
    elif row.kind == LINK and (old is None or old.target != row.target):
        _remove_if_exists(path)
        os.symlink(row.target, path)


def _remove_if_exists(path: bytes) -> None:
    try:
        file_stat = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return  # the entry was removed together with its folder
    if stat.S_ISDIR(file_stat.st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _set_attributes(root: bytes, wanted: Listing) -> None:
    """Set modes and times. A folder is handled after its content, because a change of the content
    changes the folder's time."""
    for index in range(len(wanted) - 1, -1, -1):
        row = wanted[index]
        if row.same_as != NOT_LINKED:
            continue
        path = os.path.join(root, row.path) if row.path else root
        mode = row.mode if row.path else row.mode & ~_OTHERS_WRITE | 0o700
        file_stat = os.lstat(path)
        if row.kind != LINK and stat.S_IMODE(file_stat.st_mode) != mode:
            os.chmod(path, mode)
        if file_stat.st_mtime_ns != row.mtime_ns:
            os.utime(path, ns=(file_stat.st_atime_ns, row.mtime_ns), follow_symlinks=False)


VERBS = {
    "data.state": report_state,
    "data.lack": begin_sync,
    "data.losing": count_files_to_remove,
    "data.commit": commit_sync,
    "data.held": data_files.report_present_files,
}
