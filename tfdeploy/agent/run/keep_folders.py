"""Describe the content of a job's keep folders: how old it is, and from which checkpoint TensorFlow
would continue. Changes nothing."""

from __future__ import annotations

import os
import re
import stat

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
)
from tfdeploy.agent.errors import VerbError, is_safe_relative_path
from tfdeploy.agent.host.atomic import read_text
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

# The name of the file in which TensorFlow records the newest checkpoint of a folder.
RECORD = "checkpoint"
# A folder is listed at most this many times. It is listed again if its `checkpoint` record was
# replaced during the listing.
TRIES = 20
FileRow = Tuple[str, int, int, Optional[str]]  # path, size, mtime_ns, target if it is a link
_CHECKPOINT = re.compile(r'^model_checkpoint_path: "((?:[^"\\]|\\.)*)"', re.MULTILINE)
_STEP = re.compile(r"-(\d{1,20})\Z")
_WORKER_FOLDER = re.compile(r"workertemp_\d+\Z")
_MOST_STEPS = 1 << 53  # a larger number in a checkpoint's name is not a step


def describe_keep_folders(
    workdir: str, job: str, paths: List[str], name_by_path: Optional[Mapping[str, str]] = None
) -> List[Answer]:
    """Return one model.facts.KeepFolderFact for each path that holds at least one file.
    `name_by_path`: {path: current name} of folders that a launch has renamed. Raises VerbError
    bad_name."""
    facts: List[Answer] = []
    for path in check_keep_paths(paths):
        files = scan_keep_folder(
            layout.keep_dir(workdir, job, (name_by_path or {}).get(path, path))
        )
        if files.newest_mtime is not None:
            checkpoint = _read_checkpoint_name(files.record_path) if files.record_path else None
            facts.append(
                {
                    "path": path,
                    "newest": files.newest_mtime,
                    "checkpoint": checkpoint,
                    "step": _parse_step(checkpoint or ""),
                    "recorded": files.record_mtime if checkpoint else None,
                    "files": files.file_count,
                    "bytes": files.byte_count,
                }
            )
    return facts


def _parse_step(checkpoint: str) -> Optional[int]:
    """Return the step in a checkpoint's name. Return None if the name does not end in a number, or
    if the number is too large for a step."""
    match = _STEP.search(checkpoint)
    step = int(match.group(1)) if match else _MOST_STEPS + 1
    return step if step <= _MOST_STEPS else None


def check_keep_paths(paths: Any) -> List[str]:
    """Return `paths` as a list. Raises VerbError bad_name if one of the paths leads out of the
    code's folder."""
    for path in paths or []:
        if not is_safe_relative_path(path):
            raise VerbError("bad_name", "the keep path %r leads out of the code folder" % (path,))
    return list(paths or [])


class KeepFolderSummary(NamedTuple):
    """The files of a keep folder. `newest_mtime`: mtime of the newest file, in seconds; None if
    there is no file. `record_path`: path of the newest file named `checkpoint`. `record_mtime`:
    mtime of `record_path`."""

    newest_mtime: Optional[float]
    record_path: Optional[str]
    record_mtime: float
    file_count: int
    byte_count: int


def scan_keep_folder(folder: str) -> KeepFolderSummary:
    """Count the files below `folder` and their bytes, and find the newest file and the newest
    `checkpoint` record. TensorFlow's temporary folders of workers other than the chief are left
    out."""
    latest, recorded, record, files, size = None, -1.0, None, 0, 0
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _WORKER_FOLDER.match(name)]
        for name in names:
            try:
                stats = os.lstat(os.path.join(base, name))
            except OSError:
                continue  # the program has deleted the file meanwhile, such as an old checkpoint
            changed = stats.st_mtime
            files, size = files + 1, size + stats.st_size
            latest = max(latest or 0.0, changed)
            if name == RECORD and changed > recorded:
                recorded, record = changed, os.path.join(base, name)
    return KeepFolderSummary(latest, record, recorded, files, size)


def _read_checkpoint_name(record: str) -> Optional[str]:
    match = _CHECKPOINT.search(read_text(record))
    return os.path.basename(match.group(1)) if match else None


def list_keep_rows(workdir: str, job: str, keep: List[str]) -> List[FileRow]:
    """Return a row for each file and link in a job's keep folders. In each folder, the `checkpoint`
    record comes first. Raises VerbError bad_name."""
    return list_stable_rows(*locate_keep_files(workdir, job, keep))


def locate_keep_files(
    workdir: str, job: str, keep: List[str]
) -> Tuple[str, Callable[[], Iterator[str]]]:
    """Return the folder above a job's keep folders, and a function that yields the paths of the
    files and links in them, relative to that folder. Raises VerbError bad_name."""
    root, folders = layout.keep_dir(workdir, job, "")[:-1], check_keep_paths(keep)
    return root, lambda: (path for top in folders for path in walk_files(root, top))


def list_stable_rows(root: str, paths: Callable[[], Iterator[str]]) -> List[FileRow]:
    """Return a row for each of the paths that `paths()` yields. If a `checkpoint` record changes
    while the paths are listed, call `paths()` again, at most TRIES times in all."""
    rows: List[FileRow] = []
    for _ in range(TRIES):
        rows = [row for row in (make_row(root, path) for path in paths()) if row is not None]
        if all(make_row(root, row[0]) == row for row in rows if os.path.basename(row[0]) == RECORD):
            break
    return rows


def walk_files(root: str, top: str) -> Iterator[str]:
    """Yield the path of each file and link below `top`, relative to `root`. In each folder, the
    `checkpoint` record comes first. The other files of the folder are listed only after the caller
    has received this path. So a caller that reads the record at once also gets all files that the
    record names."""
    for folder, folders, names in os.walk(os.path.join(root, top)):
        if RECORD in names:
            yield os.path.relpath(os.path.join(folder, RECORD), root)
            names = next(os.walk(folder), (folder, folders, names))[2]
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(name for name in folders if name not in links)
        for name in sorted({*names, *links} - {RECORD}):
            yield os.path.relpath(os.path.join(folder, name), root)


def make_row(root: str, path: str) -> Optional[FileRow]:
    """Return the row of a path. Return None if the path is neither a file nor a link, or no longer
    exists."""
    full_path = os.path.join(root, path)
    try:
        file_stat = os.lstat(full_path)
        mtime_ns = max(0, file_stat.st_mtime_ns)
        if stat.S_ISLNK(file_stat.st_mode):
            return path, 0, mtime_ns, os.readlink(full_path)
    except OSError:
        return None
    is_file = stat.S_ISREG(file_stat.st_mode)
    return (path, file_stat.st_size, mtime_ns, None) if is_file else None
