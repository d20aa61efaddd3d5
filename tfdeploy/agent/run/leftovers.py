"""End a run on this host, once none of its processes is alive: remove secrets, list files outside
keep."""

from __future__ import annotations

import itertools
import os
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import Iterator, List, Set
from tfdeploy.agent.host.atomic import remove_temporaries
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.run.folder import SECRET_FILES, RunPaths

ABORT = "@abort"  # suffix of a file beside the note of a run in doubt: a prepare that goes on stops
_MAX_NAMED = 100
_TRIES = 5
_HALF_S = 1.0
_FOLDERS_S = 10.0


def forget_secrets(paths: RunPaths) -> None:
    """Remove the run's secrets, including those that a killed prepare left."""
    for name in SECRET_FILES:
        remove_temporaries(paths.file(name))
        try:
            os.unlink(paths.file(name))
        except OSError:
            pass


def restore_links(paths: RunPaths, task: str = "") -> None:
    """Restore links to `keep` that the program replaced. The log of `task`, or of the first task,
    says so."""
    part = paths.part()
    if paths.replaced_links(part.keep):
        # seldom needed: it would slow down each minder's start
        from tfdeploy.agent.run import keep_links

        keep_links.restore_after(paths, part, task)


def remove_half_words(paths: RunPaths) -> None:
    """Remove temporary files of sessions that ended while they wrote a word. A file that is being
    written now stays."""
    try:
        for each in os.listdir(paths.host_dir):
            path = paths.file(each)
            if (
                each.startswith(".word.")
                and each.endswith(".tmp")
                and os.stat(path).st_mtime < time.time() - _HALF_S
            ):
                os.unlink(path)
    except OSError:
        pass  # removed by another, or with the folder


def forget_doubt(paths: RunPaths) -> None:
    """Note that the run is no longer in doubt here: it is committed, or over."""
    note = layout.in_doubt(paths.workdir, paths.job, paths.run, paths.host)
    for path in (note, note + ABORT):
        try:
            os.unlink(path)
        except OSError:
            pass


def put_back_keep(paths: RunPaths) -> None:
    """Put back what `launch --fresh` has set aside, if the launch was rolled back. Raises
    OSError."""
    if os.path.exists(paths.file(layout.ASIDE)):
        from tfdeploy.agent.run import keep_aside  # seldom needed

        keep_aside.put_back(paths)


def remove(paths: RunPaths) -> None:
    """Remove this host's folder of a run, and the run's folder once no other host has one there."""
    import shutil  # would cost each minder a millisecond

    put_back_keep(paths)
    forget_secrets(paths)
    gone = os.path.join(paths.run_dir, "gone-%s" % os.urandom(8).hex())
    with folders_lock(paths):
        try:
            # in one step: the next launch of that name may make its own folder at any moment
            os.rename(paths.host_dir, gone)
        except OSError:
            shutil.rmtree(paths.host_dir, ignore_errors=True)
        try:
            os.rmdir(os.path.dirname(paths.host_dir))
        except OSError:
            pass  # another host has a folder there, or is removing the run's
        if not os.path.isdir(os.path.dirname(paths.host_dir)):
            shutil.rmtree(paths.run_dir, ignore_errors=True)
        forget_doubt(paths)
    for _ in range(_TRIES):  # a minder that ends because of it may be writing there
        shutil.rmtree(gone, ignore_errors=True)
        if not os.path.lexists(gone):
            break


def folders_lock(paths: RunPaths) -> FileLock:
    """Acquire the lock with which hosts that share a workdir make a folder of a run, or remove the
    run's.

    Not held: there is no such lock, or another host has held it for too long, and may be dead.
    """
    lock = FileLock(layout.folders_lock(paths.workdir, paths.job))
    try:
        lock.acquire(_FOLDERS_S)
    except OSError:
        pass
    return lock


def left_files(paths: RunPaths, part: wire.HostPart) -> List[str]:
    """Return the first 100 of `left_paths`."""
    return list(itertools.islice(left_paths(paths, part), _MAX_NAMED))


def left_paths(paths: RunPaths, part: wire.HostPart) -> Iterator[str]:
    """Return the files in cwd/ outside keep that are new, or differ from the release, sorted within
    each folder."""
    release = layout.release_dir(paths.workdir, paths.job, part.release)
    skipped: Set[str] = set(part.keep) | set(part.links)
    for folder, folders, names in os.walk(paths.cwd):
        relative = os.path.relpath(folder, paths.cwd)
        prefix = "" if relative == "." else relative + "/"
        folders[:] = sorted(
            name for name in folders if name != "__pycache__" and prefix + name not in skipped
        )
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in sorted(names + links):
            path = prefix + name
            if path not in skipped and _differs(
                os.path.join(folder, name), os.path.join(release, path)
            ):
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
    return (new.st_size, new.st_mtime_ns) != (old.st_size, old.st_mtime_ns) and not os.path.islink(
        path
    )
