"""Content on the disk before its name: after a power cut a file that was only renamed may be there,
and empty."""

from __future__ import annotations

import os
from itertools import islice

from tfdeploy.agent.annotations import Iterable, List
from tfdeploy.agent.host.parallel import start_calls

FEW = 256  # so many are flushed one by one; of more, one flush of the whole file system is quicker
_EACH = 4  # fewer are flushed by one thread
_MOST_THREADS = 16  # file systems commit what comes at once together


def flush(root: str, paths: Iterable[str]) -> None:
    """The files `paths` below `root`, and the folders that name them. Raises OSError."""
    waiting_paths = iter(paths)
    files = [os.path.join(root, path) for path in islice(waiting_paths, FEW + 1)]
    if len(files) > FEW and _flush_all(root):
        return  # the names of a million files are not kept
    files += [os.path.join(root, path) for path in waiting_paths]
    names = sorted(set(files) | {root} | {os.path.dirname(file) for file in files})
    errors: List[OSError] = []

    def flush_one(name: str) -> None:
        try:
            _flush(name)
        except OSError as error:
            errors.append(error)

    start_calls(flush_one, names, most_threads=max(1, min(_MOST_THREADS, len(names) // _EACH)))()
    if errors:
        raise errors[0]


def flush_folder(path: str) -> None:
    """What was made, renamed or removed in it. Raises OSError."""
    _flush(path)


def _flush(path: str) -> None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _flush_all(root: str) -> bool:
    """False: this system cannot, or did not."""
    import ctypes

    folder = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return bool(ctypes.CDLL(None, use_errno=True).syncfs(folder) == 0)
    except AttributeError:
        return False
    finally:
        os.close(folder)


def changed_since(root: str, paths: Iterable[str], time_s: float) -> List[str]:
    """Those whose content or name came since then."""
    return [path for path in paths if os.lstat(os.path.join(root, path)).st_ctime >= time_s]
