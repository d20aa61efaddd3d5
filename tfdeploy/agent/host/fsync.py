"""Flush files to the disk before they get their final names. After a power cut, a file that was
only renamed may exist and be empty."""

from __future__ import annotations

import os
from itertools import islice

from tfdeploy.agent.annotations import Iterable, List
from tfdeploy.agent.host.parallel import start_calls

FEW = 256  # more files are flushed together with the whole file system, which is quicker
_EACH = 4  # files per thread, at least
_MOST_THREADS = 16  # file systems combine flushes that arrive at the same time


def flush(root: str, paths: Iterable[str]) -> None:
    """Flush the files `paths` below `root`, and the folders that contain them. Raises OSError."""
    waiting_paths = iter(paths)
    files = [os.path.join(root, path) for path in islice(waiting_paths, FEW + 1)]
    if len(files) > FEW and _flush_all(root):
        return  # without reading the other paths: there may be a million
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
    """Flush the folder itself: the names that were created, changed or removed in it. Raises
    OSError."""
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
    """Flush the whole file system of `root`. Return False if this system cannot do that or it
    failed."""
    import ctypes

    folder = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return bool(ctypes.CDLL(None, use_errno=True).syncfs(folder) == 0)
    except AttributeError:
        return False
    finally:
        os.close(folder)


def changed_since(root: str, paths: Iterable[str], time_s: float) -> List[str]:
    """Return the paths whose content or metadata changed at or after `time_s` (UTC seconds)."""
    return [path for path in paths if os.lstat(os.path.join(root, path)).st_ctime >= time_s]
