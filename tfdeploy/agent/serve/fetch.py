"""Answers `fetch.*`: lists and hashes the files in a job's keep folders, and the files that a run's
program left in cwd/. A keep folder is for checkpoints, and stays after the run has ended.

The files are only read, and a training may write to them meanwhile. rsync copies them to the
control machine, and the hashes verify the copies.
"""

from __future__ import annotations

import hashlib
import os

from tfdeploy.agent.annotations import TYPE_CHECKING, Callable, Iterator, Optional, Tuple
from tfdeploy.agent.call import Call, audited
from tfdeploy.agent.errors import VerbError, is_safe_relative_path
from tfdeploy.agent.host import file_sum
from tfdeploy.agent.log.reader import LogReader
from tfdeploy.agent.run import keep_folders
from tfdeploy.agent.run.find import host_folders
from tfdeploy.agent.run.leftovers import find_new_paths
from tfdeploy.agent.serve.run.status import named_run_paths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

ROWS = 1000  # how many files one item of the answer lists


@audited("fetch", "files listed")
def list_files(call: Call) -> Answer:
    """List files. In each folder of `keep`, TensorFlow's file named `checkpoint`, which records the
    newest checkpoint, comes first. If such a record changes meanwhile, the files are listed again,
    so that the record matches the files that it names.

    Args: job, what ("keep" or "files"). For "keep" also: keep [paths]. For "files" also: run.

    Raises VerbError unknown_run, bad_argument, bad_name.
    """
    root, paths = _root_and_paths(call)
    rows = keep_folders.list_stable_rows(root, paths)
    for start in range(0, len(rows), ROWS):
        call.item({"rows": rows[start : start + ROWS]}, b"")
    sharing = host_folders(call.workdir, call.job, call.name("run")) if call.flag("run") else []
    return {"root": root, "sharing": [folder.host for folder in sharing]}


def hash_files(call: Call) -> Answer:
    """Hash the first bytes of files. A file that has only grown since it was copied still has the
    hash of the copy.

    Args: as for fetch.list; files [[path, bytes], ...].
    """
    root, _ = _root_and_paths(call)
    for path, length in call.rows("files", str, int):
        if length < 0 or not is_safe_relative_path(path):
            raise VerbError("bad_argument", "%r is not [path, bytes]" % ([path, length],))
        if call.cancelled.is_set():
            break
        call.item({"sum": [path, _hash_first_bytes(os.path.join(root, path), length)]}, b"")
    return {}


def hash_log(call: Call) -> Answer:
    """Hash the part of a task's log between the offsets `first` and `end`. If the beginning of this
    part is no longer stored, the hash begins at a later offset: `first` of the answer.

    Args: run, job, task, first, end.

    Raises VerbError unknown_run.
    """
    paths = named_run_paths(call)
    task, end = call.text("task"), call.integer("end")
    if task not in paths.tasks():
        raise VerbError("bad_argument", "%r is no task of this host" % (task,))
    reader = LogReader(paths.task_dir(task), call.integer("first"))
    digest, first = hashlib.sha256(), end
    try:
        while first == end or reader.offset < end:
            piece = reader.read()
            if piece is None or piece.offset >= end:
                break
            first = min(first, piece.offset)
            digest.update(piece.blob[: end - piece.offset])
    finally:
        reader.close()
    return {"first": first, "end": end, "sha256": digest.hexdigest()}


def _root_and_paths(call: Call) -> Tuple[str, Callable[[], Iterator[str]]]:
    """Return (folder, a function that yields the paths of the files in it). If the argument `what`
    is "keep", the folder is the one that holds the job's keep folders. If `what` is "files", the
    folder is the run's cwd/."""
    what, job = call.args.get("what"), call.job
    if what == "keep":
        return keep_folders.locate_keep_files(call.workdir, job, call.rows("keep"))
    if what == "files":
        paths = named_run_paths(call)
        part = paths.part()
        return paths.cwd, lambda: find_new_paths(paths, part)
    raise VerbError(
        "bad_argument", "the argument `what` is %r, but must be keep or files" % (what,)
    )


def _hash_first_bytes(path: str, length: int) -> Optional[str]:
    try:
        return file_sum.hash_first_bytes(path, length)
    except OSError:
        return None  # the file is gone or cannot be read


VERBS = {"fetch.list": list_files, "fetch.sums": hash_files, "fetch.log_sum": hash_log}
