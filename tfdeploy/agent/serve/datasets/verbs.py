"""`data.*`: folders of data that tfdeploy made, by a marker beside them, and whether they are
whole.

A broadcast fills a staging folder (data_staging.py), rsync the folder itself. A folder without the
marker is never touched; one that rsync is filling has no record (data_record.py).
"""

from __future__ import annotations

import os
import shutil
import stat

from tfdeploy.agent import bitmap, layout, listing, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Iterator, Optional
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import removal
from tfdeploy.agent.host.disk import free_space, require_space
from tfdeploy.agent.host.fsync import changed_since, flush
from tfdeploy.agent.listing import FILE, FOLDER
from tfdeploy.agent.ownership import check
from tfdeploy.agent.serve.call import Call, audited, fenced
from tfdeploy.agent.serve.datasets import parts as data_parts
from tfdeploy.agent.serve.datasets import place as data_place
from tfdeploy.agent.serve.datasets import record as data_record
from tfdeploy.agent.serve.datasets import versions as data_versions
from tfdeploy.agent.serve.datasets.staging import Staging, strange, walk

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer


def state(call: Call) -> Optional[Answer]:
    """Say what lies here of a data set, only if it is whole. A version that waited for a run's end
    is put in place, once that has ended.

    Args: job, name.
    """
    folder = _folder(call)
    data_versions.settle(call.context.workdir, call.name("job"), call.name("name"))
    newest = data_versions.newest(folder)
    record = data_record.read(newest)
    if record is None or not os.path.isdir(newest):
        return None
    return {
        "digest": digest(newest),
        "attributes": record["attributes"],
        "parts": data_parts.name_of(record["parts"]),
    }


@fenced
def lack(call: Call) -> Answer:
    """Say what this host lacks of a data set. From now on that is staged beside the data set, which
    stays as it is.

    Args: job, name, reserve?; blob: a packed Listing.

    Raises VerbError bad_listing, not_ours, disk.
    """
    folder = _folder(call)
    _check_ours(folder)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    data_record.mark(folder)
    staging = Staging(folder)
    lacking = staging.begin(call.blob, call.integer("reserve"))
    wanted = staging.listing()
    return {
        "lacking": bitmap.pack(lacking),
        "lacking_bytes": sum(wanted.size(row) for row in bitmap.numbers_of(lacking)),
        "folder_id": data_record.identity(folder),
    }


@fenced
def begin(call: Call) -> Answer:
    """Mark a data set as ours, and from now on as not whole. With `ask` nothing changes: the answer
    says what the sync would replace, and `files` and `losing` are counted where another state
    than `digest` lies here.

    Args: job, name, bytes, digest?, ask?; blob: the 8-byte BLAKE2b of each path that comes.

    Raises VerbError disk, not_ours (no marker of ours), live_run (a live run here reads it and its
    content is not `digest`; details run, who, when).
    """
    folder = _folder(call)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    _check_ours(folder)
    if os.path.lexists(folder) and not call.flag("staged"):
        _refuse_live_run(call)
    if not call.flag("staged"):
        _check_space(folder, call.integer("bytes"))
    if call.flag("ask"):
        return _losses(call, folder)
    data_record.mark(folder)
    os.makedirs(folder, exist_ok=True)
    data_record.forget(folder)
    return {"folder": folder}


def _losses(call: Call, folder: str) -> Answer:
    """The number of "files" there, and of those that the sync is "losing": the blob does not name
    them. Neither where the content is `digest` already."""
    record = data_record.read(folder)
    if not os.path.isdir(folder) or ("" if record is None else record["digest"]) == call.text(
        "digest"
    ):
        return {"folder": folder}
    step = wire.NAME_KEY_BYTES
    coming = {call.blob[at : at + step] for at in range(0, len(call.blob), step)}
    there = [not coming or wire.name_key(path) in coming for path in paths(folder)]
    return {"folder": folder, "files": len(there), "losing": there.count(False)}


def _check_ours(folder: str) -> None:
    """Raises VerbError not_ours."""
    if os.path.lexists(folder) and (
        not data_record.is_ours(folder) or os.path.islink(folder) or not os.path.isdir(folder)
    ):
        raise VerbError(
            "not_ours",
            "%s exists and was not made by tfdeploy" % folder,
            where=folder,
            advice="another_data_name",
        )


def _refuse_live_run(call: Call) -> None:
    """rsync changes the folder itself. Raises VerbError live_run."""
    workdir, job, name = call.context.workdir, call.name("job"), call.name("name")
    live_run = data_versions.live_run(workdir, job, name)
    folder = _folder(call)
    if live_run is None or (
        call.text("digest") and data_record.read(folder) and digest(folder) == call.text("digest")
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


@fenced
@audited("sync", "sent")
def commit(call: Call) -> Answer:
    """Record a data set as whole, if its content is the expected one. What a broadcast brought
    (`staged`) is put in place, or beside the folder while a live run reads that.

    Args: job, name, digest or staged, parts?: how many there are; blob: zlib of two bytes for each
    row of the listing, its part.

    Raises VerbError not_begun.
    """
    folder = _folder(call)
    if call.flag("staged"):
        return _commit_staged(call, folder)
    if not os.path.isdir(folder):
        raise VerbError("not_begun", "no data set was begun in %s" % folder, where=folder)
    actual_digest = digest(folder)
    ok = actual_digest == call.text("digest")
    if ok:
        _remove_partial(folder)
        _flush(folder)
        data_record.write(folder, actual_digest)
    return {"digest": actual_digest, "ok": ok}


def _commit_staged(call: Call, folder: str) -> Answer:
    """Puts in place what a broadcast brought: in the folder, or beside it while a live run reads
    that."""
    staging = Staging(folder)
    wanted = staging.listing()
    lacking = staging.lacking(wanted)
    if data_place.unready(staging, wanted, lacking):
        return {"digest": "", "ok": False}
    beside = (
        data_versions.live_run(call.context.workdir, call.name("job"), call.name("name"))
        is not None
    )
    if beside and not data_record.is_of(staging.old, wanted.digest(), wanted.attributes()):
        target = data_versions.beside(folder, data_versions.NEXT)
        building = data_versions.beside(folder, "building")
        new = data_place.place_beside(staging, wanted, lacking, building)
        data_record.forget(target)
        removal.remove(target)
        os.rename(building, target)
    else:
        target = staging.old
        data_record.forget(target)
        new = data_place.place(staging, wanted, lacking)
    actual_digest = digest(target)
    ok = actual_digest == wanted.digest()
    if ok:
        flush(target, (os.fsdecode(wanted.path(row)) for row in new))
        parts = data_parts.from_blob(call.integer("parts"), call.blob)
        data_record.write(target, actual_digest, wanted.attributes(), parts)
        staging.remove()
    return {"digest": actual_digest, "ok": ok}


def _flush(folder: str) -> None:
    """Flushes to disk the files that changed since the sync began."""
    files = [os.fsdecode(row.path) for row in walk(folder) if row.kind == FILE]
    flush(folder, changed_since(folder, files, data_record.begun(folder)))


def digest(folder: str) -> str:
    """Names the state of what lies there: Listing.digest. Raises VerbError strange for what is
    neither file, link nor folder."""
    with strange():
        return listing.digest(listing.rows_in(folder))


def paths(folder: str) -> Iterator[str]:
    """Of all that is no folder."""
    return (os.fsdecode(row.path) for row in walk(folder) if row.kind != FOLDER)


def size_bytes(folder: str) -> int:
    """On disk, without following links; 0 where there is nothing."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            file_stat = os.lstat(os.path.join(base, name))
            if stat.S_ISREG(file_stat.st_mode):
                total += file_stat.st_blocks * 512
    return total


def _remove_partial(folder: str) -> None:
    for base, names, _ in os.walk(folder):
        if layout.PARTIAL in names:
            names.remove(layout.PARTIAL)
            shutil.rmtree(os.path.join(base, layout.PARTIAL))


def _check_space(folder: str, bytes_wanted: int) -> None:
    if bytes_wanted > free_space(folder).free_bytes:  # else what lies there need not be counted
        require_space(folder, "the data", bytes_wanted - size_bytes(folder))


def _folder(call: Call) -> str:
    job, name = call.name("job"), call.name("name")
    folder = layout.data_dir(call.context.workdir, job, name)
    if os.path.isdir(folder) and not os.path.islink(folder):
        check(call.context.workdir, "%s/data/%s" % (job, name))
    return folder


VERBS = {
    "data.state": state,
    "data.lack": lack,
    "data.begin": begin,
    "data.commit": commit,
    "data.held": data_parts.held,
}
