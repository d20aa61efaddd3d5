"""The last things when nothing of a run is alive on this host: secrets go, files that stay behind are named."""

from __future__ import annotations

import itertools
import os
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import Iterator, List, Optional, Set
from tfdeploy.agent.host.flock import take_lock
from tfdeploy.agent.run.folder import SECRET_FILES, RunPaths

ABORT = "@abort"  # beside the note of a run in doubt: it is rolled back, and a prepare that goes on stops
_MAX_NAMED = 100
_TRIES = 5
_HALF_S = 1.0
_FOLDERS_S = 10.0


def forget_secrets(paths: RunPaths) -> None:
    for name in SECRET_FILES:
        try:
            os.unlink(paths.file(name))
        except OSError:
            pass


def restore_links(paths: RunPaths, task: str = "") -> None:
    """What the program put in place of its links to `keep` is taken in; the log of the task, or of the first one, says so."""
    part = paths.part()
    if paths.replaced_links(part.keep):
        from tfdeploy.agent.run import keep_links  # hardly ever: each minder's start would pay for it

        keep_links.restore_after(paths, part, task)


def remove_half_words(paths: RunPaths) -> None:
    """What a session left that ended while it wrote a word. One that is being written now stays."""
    try:
        for each in os.listdir(paths.host_dir):
            path = paths.file(each)
            if each.startswith(".word.") and each.endswith(".tmp") and os.stat(path).st_mtime < time.time() - _HALF_S:
                os.unlink(path)
    except OSError:
        pass  # removed by another, or with the folder


def forget_doubt(paths: RunPaths) -> None:
    """The run is no longer in doubt here: committed, or over."""
    note = layout.in_doubt(paths.workdir, paths.job, paths.run, paths.host)
    for path in (note, note + ABORT):
        try:
            os.unlink(path)
        except OSError:
            pass


def remove(paths: RunPaths) -> None:
    """This host's folder of a run, and the run's, once no other host that shares it has one."""
    import shutil  # costs each minder a millisecond

    forget_secrets(paths)
    gone = os.path.join(paths.run_dir, "gone-%s" % os.urandom(8).hex())
    lock = folders_lock(paths)
    try:
        os.rename(paths.host_dir, gone)  # at once: the next launch of that name may make its own any moment
    except OSError:
        shutil.rmtree(paths.host_dir, ignore_errors=True)
    try:
        os.rmdir(os.path.dirname(paths.host_dir))
    except OSError:
        pass  # another host has one, or is removing the run's folder
    if not os.path.isdir(os.path.dirname(paths.host_dir)):
        shutil.rmtree(paths.run_dir, ignore_errors=True)
    forget_doubt(paths)
    unlock(lock)
    for _ in range(_TRIES):  # a minder that dies of it may be writing there
        shutil.rmtree(gone, ignore_errors=True)
        if not os.path.lexists(gone):
            break


def folders_lock(paths: RunPaths) -> Optional[int]:
    """Of the hosts that share a workdir only one at a time begins a folder of a run, or removes the run's. None: there is no
    such lock, or somebody has held it for too long, which on a file server may be a host that is dead."""
    deadline = time.monotonic() + _FOLDERS_S
    try:
        lock = take_lock(layout.folders_lock(paths.workdir, paths.job))
        while lock is None and time.monotonic() < deadline:
            lock = take_lock(layout.folders_lock(paths.workdir, paths.job))
    except OSError:
        return None
    return lock


def unlock(lock: Optional[int]) -> None:
    if lock is not None:
        os.close(lock)


def left_files(paths: RunPaths, part: wire.HostPart) -> List[str]:
    """The first 100 of `left_paths`."""
    return list(itertools.islice(left_paths(paths, part), _MAX_NAMED))


def left_paths(paths: RunPaths, part: wire.HostPart) -> Iterator[str]:
    """What the program wrote in cwd/ outside keep: new, or other than in the release. Sorted in each folder."""
    release = layout.release_dir(paths.workdir, paths.job, part.release)
    skipped: Set[str] = set(part.keep) | set(part.links)
    for folder, folders, names in os.walk(paths.cwd):
        relative = os.path.relpath(folder, paths.cwd)
        prefix = "" if relative == "." else relative + "/"
        folders[:] = sorted(name for name in folders if name != "__pycache__" and prefix + name not in skipped)
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in sorted(names + links):
            path = prefix + name
            if path not in skipped and _differs(os.path.join(folder, name), os.path.join(release, path)):
                yield path


def _differs(path: str, original: str) -> bool:
    try:
        new = os.lstat(path)
    except OSError:
        return False
    try:
        old = os.lstat(original)
    except OSError:
        return True
    return (new.st_size, new.st_mtime_ns) != (old.st_size, old.st_mtime_ns) and not os.path.islink(path)
