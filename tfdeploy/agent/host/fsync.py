"""Flush files to the disk before they get their final names. Without a flush, a renamed file may
exist but be empty after a power cut."""

from __future__ import annotations

import os
from itertools import islice

from tfdeploy.agent.annotations import Iterable, List
from tfdeploy.agent.host.parallel import start_calls

# For more files than this, one call flushes the whole file system, which is faster.
MAX_SINGLE_FLUSHES = 256
_FILES_PER_THREAD = 4  # at most one thread is started for this many files
# Several threads are faster, because file systems combine flushes that arrive at the same time.
_MOST_THREADS = 16


def flush_files(root: str, paths: Iterable[str]) -> None:
    """Flush the files `paths` below `root`, and the folders that contain them. Raises OSError."""
    waiting_paths = iter(paths)
    files = [os.path.join(root, path) for path in islice(waiting_paths, MAX_SINGLE_FLUSHES + 1)]
    if len(files) > MAX_SINGLE_FLUSHES and _flush_file_system(root):
        # The whole file system is flushed, so the rest of `paths` need not be read. It may have a
        # million entries.
        return
    files += [os.path.join(root, path) for path in waiting_paths]
    names = sorted(set(files) | {root} | {os.path.dirname(file) for file in files})
    errors: List[OSError] = []

    def flush_one(name: str) -> None:
        try:
            flush_path(name)
        except OSError as error:
            errors.append(error)

    start_calls(
        flush_one, names, most_threads=max(1, min(_MOST_THREADS, len(names) // _FILES_PER_THREAD))
    )()
    if errors:
        raise errors[0]


def flush_path(path: str) -> None:
    """Flush one file or one folder. Flushing a folder writes to the disk which names were created,
    changed or removed in it. Does nothing if `path` does not exist. Raises OSError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _flush_file_system(root: str) -> bool:
    """Flush the whole file system that contains `root`. Return False if the C library has no
    `syncfs`, or if the call fails."""
    import ctypes

    folder = os.open(root, os.O_RDONLY)
    try:
        return bool(ctypes.CDLL(None, use_errno=True).syncfs(folder) == 0)
    except AttributeError:
        return False
    finally:
        os.close(folder)
