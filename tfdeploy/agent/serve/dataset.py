"""`data.*`: folders of data that tfdeploy made, by a marker beside them, and whether they are whole.

rsync fills them. A folder without the marker is never touched; one that is being filled has no record (data_record.py).
"""

from __future__ import annotations

import os
import shutil
import stat

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Iterator, Optional, Tuple
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.disk import free_of
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.host.fsync import changed_since, flush
from tfdeploy.agent.ownership import check
from tfdeploy.agent.run import check_files, shown_plan, task_processes
from tfdeploy.agent.run.find import host_names, run_names
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve import data_record
from tfdeploy.agent.serve.call import Call

if TYPE_CHECKING:
    from tfdeploy.agent.answers import DataCommitted, DataPlace, DataState


def state(call: Call) -> Optional[DataState]:
    """{"digest"} of what lies there now, or None where it was never whole or a sync is under way."""
    folder = _folder(call)
    found = _stored_digest(folder)
    return None if found is None else {"digest": found}


def _stored_digest(folder: str) -> Optional[str]:
    return digest(folder) if data_record.read(folder) is not None and os.path.isdir(folder) else None


def begin(call: Call) -> DataPlace:
    """{"folder"}: marked as ours, and from now on not whole. With `ask` nothing changes: the answer says what the sync replaces.

    Raises VerbError not_ours, disk, live_run: a live run of the job reads the data set, and its content is not `digest`.
    """
    folder = _folder(call)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    if os.path.lexists(folder) and (not data_record.is_ours(folder) or os.path.islink(folder) or not os.path.isdir(folder)):
        raise VerbError(
            "not_ours",
            "%s exists and was not made by tfdeploy" % folder,
            where=folder,
            next="move it away, or give the data set another name",
        )
    if os.path.lexists(folder):
        _refuse_live_run(call)
    _check_room(folder, call.integer("bytes"))
    if call.flag("ask"):
        return _losses(call, folder)
    data_record.mark(folder)
    os.makedirs(folder, exist_ok=True)
    data_record.forget(folder)
    return {"folder": folder}


def _losses(call: Call, folder: str) -> DataPlace:
    """The number of "files" there, and of those that the sync is "losing": the blob does not name them. Neither where the content
    is `digest` already."""
    record = data_record.read(folder)
    if not os.path.isdir(folder) or ("" if record is None else record["digest"]) == call.text("digest"):
        return {"folder": folder}
    step = wire.NAME_KEY_BYTES
    coming = {call.blob[at : at + step] for at in range(0, len(call.blob), step)}
    there = [not coming or wire.name_key(row[0]) in coming for row in rows(folder)]
    return {"folder": folder, "files": len(there), "losing": there.count(False)}


def _refuse_live_run(call: Call) -> None:
    """Runs of hosts that share the workdir count too: so locks decide, not this host's boot id."""
    workdir, job, name = call.context.workdir, call.name("job"), call.name("name")
    for run in run_names(workdir, job):
        plan = shown_plan.read(workdir, job, run)
        if plan["data"] is not None and name not in plan["data"]:
            continue
        for host in host_names(workdir, job, run):
            if not check_files.wrong(workdir, job, run, host) and _is_alive(RunPaths(layout.host_dir(workdir, job, run, host))):
                if call.text("digest") and _stored_digest(_folder(call)) == call.text("digest"):
                    return
                operator = plan["operator"]
                what = "run %s of job %s, launched by %s, is alive on this host and reads the data set %s"
                raise VerbError(
                    "live_run",
                    what % (run, job, operator, name),
                    next="tfdeploy stop %s, or sync when it has ended" % run,
                    details={"run": run, "who": operator, "when": plan["created"]},
                )


def _is_alive(paths: RunPaths) -> bool:
    """It has a minder or a supervisor, or processes that outlived both."""
    if paths.state().phase == "ended":
        return False
    tasks = [spec.task for spec in paths.part().tasks]
    locks = [paths.minder_lock, *(paths.supervisor_lock(task) for task in tasks)]
    return any(is_locked(lock) for lock in locks) or bool(task_processes.members(paths, tasks)[0])


def commit(call: Call) -> DataCommitted:
    """{"digest": of the content, "ok": whether it is the expected one}; only then it is recorded as whole.

    Raises VerbError not_begun.
    """
    folder = _folder(call)
    if not os.path.isdir(folder):
        raise VerbError("not_begun", "no data set was begun in %s" % folder, where=folder)
    found = digest(folder)
    ok = found == call.text("digest")
    if ok:
        _remove_partial(folder)
        _flush(folder)
        data_record.write(folder, found)
    return {"digest": found, "ok": ok}


def _flush(folder: str) -> None:
    """Flushes to disk the files that changed since the sync began."""
    begun = data_record.begun(folder)
    flush(folder, changed_since(folder, (path for path, _, _, kind, _ in rows(folder) if kind == "file"), begun))


def digest(folder: str) -> str:
    """wire.data_digest of the folder. Raises VerbError strange for what is neither file, link nor folder."""
    return wire.data_digest(rows(folder))


def rows(folder: str, prefix: str = "") -> Iterator[Tuple[str, int, int, str, str]]:
    with os.scandir(os.path.join(folder, prefix)) as entries:
        for entry in entries:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name == layout.PARTIAL:
                    continue  # partial files that the source no longer has
                yield from rows(folder, path + "/")
            elif entry.is_symlink():
                yield path, 0, 0, "link", os.readlink(entry.path)
            elif entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                yield path, found.st_size, int(found.st_mtime_ns // 1_000_000_000), "file", ""
            else:
                raise VerbError("strange", "%s is neither a file, a link nor a folder" % entry.path, where=entry.path)


def size_bytes(folder: str) -> int:
    """On disk, without following links; 0 where there is nothing."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            found = os.lstat(os.path.join(base, name))
            if stat.S_ISREG(found.st_mode):
                total += found.st_blocks * 512
    return total


def _remove_partial(folder: str) -> None:
    for base, names, _ in os.walk(folder):
        if layout.PARTIAL in names:
            names.remove(layout.PARTIAL)
            shutil.rmtree(os.path.join(base, layout.PARTIAL))


def _check_room(folder: str, bytes_wanted: int) -> None:
    free = free_of(folder)["free_bytes"]
    if bytes_wanted <= free:
        return
    needed = bytes_wanted - size_bytes(folder)
    if needed > free:
        raise VerbError(
            "disk",
            "the data needs %d bytes more, and %d are free" % (needed, free),
            where=folder,
            next="free some space there, or set another workdir",
            details={"needed_bytes": needed, "free_bytes": free},
        )


def _folder(call: Call) -> str:
    job, name = call.name("job"), call.name("name")
    folder = layout.data_dir(call.context.workdir, job, name)
    if os.path.isdir(folder) and not os.path.islink(folder):
        check(call.context.workdir, "%s/data/%s" % (job, name))
    return folder


VERBS = {"data.state": state, "data.begin": begin, "data.commit": commit}
