"""Restore a link to a keep folder that the program replaced, and move what replaced it into keep.

A program may replace the link (`rm -rf logs; mkdir logs`). What it then writes would stay in cwd/,
where no later launch looks. Nothing is deleted: the older of two folders is set aside in keep,
under a dated name. Each step is one rename, so that after a death at any moment the next call can
continue.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import List
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.host.private_folder import make_private
from tfdeploy.agent.log.format import LogWriter
from tfdeploy.agent.run.find import run_names, run_paths
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.keep_folders import kept_files
from tfdeploy.agent.run.liveness import is_live

WITHIN_S = 60.0  # another task of the host may be moving much
_ARRIVING = ".tfdeploy-arriving"  # in keep: an unfinished copy from another file system


def restore(paths: RunPaths, keep: List[str]) -> List[str]:
    """Move into keep what the program left in place of its links. Return a sentence for each path.
    Only for a committed run: a launch that failed must not replace the checkpoints of an earlier
    run."""
    if not paths.replaced_links(keep) or not paths.says_committed():
        return []
    with keep_lock(paths.workdir, paths.job) as lock:
        if not lock.is_held():
            return []  # the next task that ends tries again
        return [_restored(paths, path) for path in paths.replaced_links(keep)]


def log_restored(log: LogWriter, attempt: int, said: List[str]) -> None:
    """Write the sentences of `restore` as lines of a task's log."""
    for each in said:
        log.append(
            ("tfdeploy: %s\n" % each).encode("utf-8", "backslashreplace"), 1, attempt, time.time()
        )


def restore_after(paths: RunPaths, part: wire.HostPart, task: str) -> None:
    """Restore the links for a task whose supervisor is dead or has ended. The sentences go to its
    log."""
    said = restore(paths, part.keep)
    for spec in [each for each in part.tasks if task in ("", each.task)][:1]:
        log = LogWriter(paths.task_dir(spec.task), spec.log_max_bytes)
        log_restored(log, paths.status(spec.task).attempt, said)
        log.close()


def of_dead_runs(workdir: str, job: str, told: str = "") -> List[str]:
    """Restore the links of runs of the job that are no longer live. Return a sentence for each. The
    caller holds the job's lock."""
    links: List[str] = []
    for run in run_names(workdir, job):
        paths = run_paths(workdir, job, run, told)
        if paths is not None and paths.is_whole() and not is_live(paths):
            links += ["run %s: %s" % (run, said) for said in restore(paths, paths.part().keep)]
    return links


def keep_lock(workdir: str, job: str) -> FileLock:
    """Acquire the lock on moving keep folders, also among hosts that share the workdir.

    Not held: it was not free within WITHIN_S, or the disk is full or read-only.
    """
    lock = FileLock(os.path.join(layout.locks_dir(workdir, job), "keep"))
    try:
        make_private(os.path.dirname(lock.path))
        lock.acquire(WITHIN_S)
    except OSError:
        pass
    return lock


def _restored(paths: RunPaths, path: str) -> str:
    place, target = os.path.join(paths.cwd, path), layout.keep_dir(paths.workdir, paths.job, path)
    try:
        _way_to(paths.cwd, path)
        make_private(os.path.dirname(target))
        said = _take_in(place, target)
        make_private(target)
        os.symlink(target, place)
    except OSError as error:
        return "%s was replaced by the program, and cannot be taken into `keep`: %s" % (path, error)
    return "%s was %s; it is a link to `keep` again" % (path, said)


def _way_to(cwd: str, path: str) -> None:
    """Return the folders above the link, made again if they are missing. Raises OSError if one of
    them is a link."""
    folder = cwd
    for word in path.split("/")[:-1]:
        folder = os.path.join(folder, word)
        if os.path.islink(folder):
            raise OSError(errno.ELOOP, "a link is in the way", folder)
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o700)


def _take_in(place: str, target: str) -> str:
    """Make `place` free. Return a text: what was there, and where it is now."""
    try:
        kind = os.lstat(place).st_mode
    except FileNotFoundError:
        return "removed by the program"
    if not stat.S_ISDIR(kind):
        what = "a link to %s" % os.readlink(place) if stat.S_ISLNK(kind) else "a file"
        return "replaced by %s, which now is %s" % (what, _move(place, _dated_name(target)))
    new, old = kept_files(place).newest, kept_files(target).newest
    if old is not None and (new is None or new < old):
        if new is None and removed_empty(place):
            return "replaced by an empty folder, and `keep` stays as it was"
        return "replaced by an older folder than the one in `keep`: it now is %s" % _move(
            place, _dated_name(target)
        )
    aside = ""
    if os.path.lexists(target) and not removed_empty(target):
        aside = _move(target, _dated_name(target))
    _move(place, target)
    return "replaced by a folder of the program, which was taken into `keep`" + (
        aside and ", and the old one is %s" % aside
    )


def _dated_name(target: str) -> str:
    """Return a dated, free name for what is set aside."""
    wanted = "%s.aside-%s" % (target, time.strftime("%Y%m%d-%H%M%S", time.gmtime()))
    names = [wanted] + ["%s-%d" % (wanted, number) for number in range(2, 1000)]
    return next(name for name in names if not os.path.lexists(name))


def removed_empty(folder: str) -> bool:
    """Remove the folder if it holds no file. Return True if it was removed."""
    if not is_empty(folder):
        return False
    shutil.rmtree(folder)
    return True


def is_empty(folder: str) -> bool:
    """True if there is no file and no link in the folder, at any depth."""
    for base, folders, names in os.walk(folder):
        if names or any(os.path.islink(os.path.join(base, each)) for each in folders):
            return False
    return True


def _move(source: str, target: str) -> str:
    """Move in one rename, also from another file system, from which it is copied first. Return
    `target`."""
    try:
        os.rename(source, target)
        return target
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    arriving = os.path.join(os.path.dirname(target), _ARRIVING)
    shutil.rmtree(arriving, ignore_errors=True)
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, arriving, symlinks=True)
        os.rename(arriving, target)
        shutil.rmtree(source)
    else:
        shutil.copy2(source, arriving, follow_symlinks=False)
        os.rename(arriving, target)
        os.unlink(source)
    return target
