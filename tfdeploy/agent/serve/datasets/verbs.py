"""Answers `data.*`: makes and checks the folders of data sets. Beside such a folder, a marker file
says that tfdeploy made the folder, and a record says that the data set is complete
(datasets/record.py).

A broadcast fills a staging folder (datasets/staging.py). rsync fills the data set's folder itself.
While rsync does so, the data set has no record. A folder without the marker file is never touched.
"""

from __future__ import annotations

import os
import shutil
import stat

from tfdeploy.agent import bitmap, layout, listing, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Optional
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import removal
from tfdeploy.agent.host.disk import free_space, require_space
from tfdeploy.agent.host.fsync import changed_since, flush_files
from tfdeploy.agent.listing import FILE, FOLDER
from tfdeploy.agent.serve.call import Call, audited, requires_job_lock
from tfdeploy.agent.serve.datasets import install as data_install
from tfdeploy.agent.serve.datasets import parts as data_parts
from tfdeploy.agent.serve.datasets import record as data_record
from tfdeploy.agent.serve.datasets import versions as data_versions
from tfdeploy.agent.serve.datasets.staging import (
    Staging,
    data_folder,
    translate_special_file,
    walk_folder,
)

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer


def report_state(call: Call) -> Optional[Answer]:
    """Describe a data set on this host, if it is complete. If a new version has waited for the end
    of a run, and that run has ended, install the new version first.

    Args: job, name.
    """
    folder = data_folder(call)
    data_versions.install_next_version(call.workdir, call.job, call.name("name"))
    newest = data_versions.newest_version_folder(folder)
    record = data_record.read_record(newest)
    if record is None or not os.path.isdir(newest):
        return None
    return {
        "digest": folder_digest(newest),
        "attributes": record["attributes"],
        "parts": data_parts.parts_digest(record["parts"]),
    }


@requires_job_lock
def begin_staged_sync(call: Call) -> Answer:
    """Begin to receive a new version of a data set, and report what this host lacks of it. The new
    version is stored beside the data set, which does not change meanwhile.

    Args: job, name, reserve?; blob: a packed Listing.

    Raises VerbError bad_listing, not_ours, disk.
    """
    folder = data_folder(call)
    _refuse_foreign_folder(folder)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    data_record.mark_sync_begun(folder)
    staging = Staging(folder)
    lacking = staging.begin(call.blob, call.integer("reserve"))
    wanted = staging.read_listing()
    return {
        "lacking": bitmap.pack(lacking),
        "lacking_bytes": sum(wanted.size(row) for row in bitmap.marked_numbers(lacking)),
        "folder_id": data_record.folder_id(folder),
    }


@requires_job_lock
def begin_sync_in_place(call: Call) -> Answer:
    """Begin a sync by rsync: record that tfdeploy made the data set's folder, and that the data set
    is not complete. With `ask`, change nothing and report what the sync would replace: `files` is
    the number of files that the data set has now, and `losing` is how many of them the sync would
    remove. Neither is reported if the content on this host matches `digest` already.

    Args: job, name, bytes, digest?, ask?, staged? (a broadcast will bring the files, so a live run
    does not matter); blob: for each path that will arrive, its 8-byte BLAKE2b.

    Raises VerbError disk, not_ours (tfdeploy did not make the folder), live_run (a live run on this
    host reads the data set, whose content is not `digest`; details run, who, when).
    """
    folder = data_folder(call)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    _refuse_foreign_folder(folder)
    if not call.flag("staged"):
        if os.path.lexists(folder):
            _refuse_if_live_run(call, folder)
        _check_space(folder, call.integer("bytes"))
    if call.flag("ask"):
        return _count_files_to_remove(call, folder)
    data_record.mark_sync_begun(folder)
    os.makedirs(folder, exist_ok=True)
    data_record.remove_record(folder)
    return {"folder": folder}


def _count_files_to_remove(call: Call, folder: str) -> Answer:
    """Return `files`, the number of files in the folder, and `losing`, how many of them the sync
    would remove because the blob does not name them. If the folder does not exist, or if its
    content already matches `digest`, the answer has neither number."""
    record = data_record.read_record(folder)
    digest = "" if record is None else record["digest"]
    if not os.path.isdir(folder) or digest == call.text("digest"):
        return {"folder": folder}
    hash_bytes = wire.NAME_KEY_BYTES
    arriving_hashes = {
        call.blob[start : start + hash_bytes] for start in range(0, len(call.blob), hash_bytes)
    }
    paths = [os.fsdecode(row.path) for row in walk_folder(folder) if row.kind != FOLDER]
    losing = (
        sum(wire.hash_path(path) not in arriving_hashes for path in paths) if arriving_hashes else 0
    )
    return {"folder": folder, "files": len(paths), "losing": losing}


def _refuse_foreign_folder(folder: str) -> None:
    """Refuse a folder that tfdeploy did not make. Raises VerbError not_ours."""
    if os.path.lexists(folder) and (
        not data_record.is_made_by_tfdeploy(folder)
        or os.path.islink(folder)
        or not os.path.isdir(folder)
    ):
        raise VerbError(
            "not_ours",
            "%s exists and was not made by tfdeploy" % folder,
            where=folder,
            advice="another_data_name",
        )


def _refuse_if_live_run(call: Call, folder: str) -> None:
    """Raise VerbError live_run if a live run reads the folder and the folder's content is not the
    wanted one. rsync would change the files while the run reads them."""
    workdir, job, name = call.workdir, call.job, call.name("name")
    live_run = data_versions.find_live_run(workdir, job, name)
    if live_run is None or (
        call.text("digest")
        and data_record.read_record(folder)
        and folder_digest(folder) == call.text("digest")
    ):
        return
    run, plan = live_run
    what = "run %s of job %s, launched by %s, is alive on this host and reads the data set %s"
    raise VerbError(
        "live_run",
        what % (run, job, plan["operator"], name),
        advice="stop_run_or_sync_later",
        details={"run": run, "who": plan["operator"], "when": plan["created"]},
    )


@requires_job_lock
@audited("sync", "sent")
def commit_sync(call: Call) -> Answer:
    """Record a data set as complete if its content is the expected one. With `staged`, first
    install the files that a broadcast brought: in the data set's folder, or beside that folder
    while a live run reads it.

    Args: job, name, digest or staged, parts? (how many parts there are); blob: the part number of
    each row of the listing, in two bytes; all of them compressed by zlib.

    Raises VerbError not_begun.
    """
    folder = data_folder(call)
    if call.flag("staged"):
        return _commit_staged(call, folder)
    if not os.path.isdir(folder):
        raise VerbError("not_begun", "no data set was begun in %s" % folder, where=folder)
    actual_digest = folder_digest(folder)
    ok = actual_digest == call.text("digest")
    if ok:
        _remove_partial_folders(folder)
        _flush_changed_files(folder)
        data_record.write_record(folder, actual_digest)
    return {"digest": actual_digest, "ok": ok}


def _commit_staged(call: Call, folder: str) -> Answer:
    """Install the files that a broadcast brought. If a live run reads the data set and its content
    changes, install them in a new folder beside the data set's folder, otherwise in that folder."""
    staging = Staging(folder)
    wanted = staging.read_listing()
    lacking = staging.find_lacking_rows(wanted)
    if data_install.list_unstaged_files(staging, wanted, lacking):
        return {"digest": "", "ok": False}
    digest, attributes = wanted.digest(), wanted.attributes_digest()
    record = data_record.read_record(staging.old_folder)
    is_recorded = record is not None and (
        (record["digest"], record["attributes"]) == (digest, attributes)
    )
    live_run = data_versions.find_live_run(call.workdir, call.job, call.name("name"))
    if live_run is not None and not is_recorded:
        target = data_versions.hidden_sibling_path(folder, data_versions.NEXT)
        building = data_versions.hidden_sibling_path(folder, "building")
        new = data_install.build_new_folder(staging, wanted, lacking, building)
        data_record.remove_record(target)
        removal.remove(target)
        os.rename(building, target)
    else:
        target = staging.old_folder
        data_record.remove_record(target)
        new = data_install.update_old_folder(staging, wanted, lacking)
    actual_digest = folder_digest(target)
    ok = actual_digest == digest
    if ok:
        flush_files(target, (os.fsdecode(wanted.path(row)) for row in new))
        parts = data_parts.encode_part_numbers(call.integer("parts"), call.blob)
        data_record.write_record(target, digest, attributes, parts)
        staging.remove()
    return {"digest": actual_digest, "ok": ok}


def _flush_changed_files(folder: str) -> None:
    """Flush each file that has changed since the sync began."""
    files = [os.fsdecode(row.path) for row in walk_folder(folder) if row.kind == FILE]
    flush_files(folder, changed_since(folder, files, data_record.sync_start_time(folder)))


def folder_digest(folder: str) -> str:
    """Return the digest of the folder's state (Listing.digest). Raises VerbError strange for an
    entry that is neither file, link nor folder."""
    with translate_special_file():
        return listing.digest(listing.rows_in(folder))


def allocated_bytes(folder: str) -> int:
    """Return how many bytes the folder's files take on disk, or 0 if there is no such folder. Links
    are not followed."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            file_stat = os.lstat(os.path.join(base, name))
            if stat.S_ISREG(file_stat.st_mode):
                total += file_stat.st_blocks * 512
    return total


def _remove_partial_folders(folder: str) -> None:
    for base, names, _ in os.walk(folder):
        if layout.PARTIAL in names:
            names.remove(layout.PARTIAL)
            shutil.rmtree(os.path.join(base, layout.PARTIAL))


def _check_space(folder: str, bytes_wanted: int) -> None:
    # The size of the present files is computed only if it matters, because that takes time.
    if bytes_wanted > free_space(folder).free_bytes:
        require_space(folder, "the data", bytes_wanted - allocated_bytes(folder))


VERBS = {
    "data.state": report_state,
    "data.lack": begin_staged_sync,
    "data.begin": begin_sync_in_place,
    "data.commit": commit_sync,
    "data.held": data_parts.report_present_files,
}
