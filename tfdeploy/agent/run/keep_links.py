"""Restore links to keep folders. Keep folders outlive runs, and the working directory of a run
(cwd/) contains links to them. If a program has replaced such a link, the link is restored, and what
the program has put in its place is moved into `keep`.

A program may replace the link by `rm -rf logs; mkdir logs`. The files that it then writes would
stay in cwd/, which no later launch reads. Nothing is deleted: if the keep folder holds files
already, the older of the two folders stays in `keep` under a name with the date. Each step is one
rename. So if a process is killed between two steps, the next call can continue.
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
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.log.format import LogWriter
from tfdeploy.agent.run.find import runs_of_this_machine
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.keep_folders import scan_keep_folder, walk_files
from tfdeploy.agent.run.liveness import is_live

# How long to wait for the lock of the keep folders. Another task may hold the lock for long, while
# it moves large folders.
WITHIN_S = 60.0
_ARRIVING = ".tfdeploy-arriving"  # an unfinished copy in `keep`, made from another file system


def restore_keep_links(paths: RunPaths, keep: List[str]) -> List[str]:
    """Restore the links to `keep` that a program has replaced or removed. If the program has put a
    file or folder in the place of a link, move that into `keep` first. Return a sentence for the
    task's log about each link.

    Does nothing if the run is not committed, because a failed launch must not replace the
    checkpoints of an earlier run.
    """
    if not paths.replaced_keep_links(keep) or not paths.is_commit_recorded():
        return []
    with acquire_keep_lock(paths.workdir, paths.job) as lock:
        if not lock.is_held():
            # The lock could not be acquired. The links are restored when the next task ends.
            return []
        return [_restore_link(paths, path) for path in paths.replaced_keep_links(keep)]


def log_restored_links(log: LogWriter, attempt: int, sentences: List[str]) -> None:
    """Write the sentences that `restore_keep_links` has returned to a task's log, one per line."""
    for each in sentences:
        log.append(
            ("tfdeploy: %s\n" % each).encode("utf-8", "backslashreplace"), 1, attempt, time.time()
        )


def restore_and_log_links(paths: RunPaths, part: wire.HostPart, task: str) -> None:
    """Restore the replaced links to `keep` for a task whose supervisor is dead or has ended, and
    report the changes in the task's log. If `task` is "", report them in the log of the first task.
    """
    sentences = restore_keep_links(paths, part.keep)
    for spec in [each for each in part.tasks if task in ("", each.task)][:1]:
        log = LogWriter(paths.task_dir(spec.task), spec.log_max_bytes)
        log_restored_links(log, paths.status(spec.task).attempt, sentences)
        log.close()


def restore_links_of_dead_runs(workdir: str, job: str, inventory_name: str) -> List[str]:
    """Restore the links to `keep` in all runs of the job that are no longer live. Return, for each
    restored link, a sentence that says what was in its place. The caller must hold the job's
    lock."""
    return [
        "run %s: %s" % (paths.run, sentence)
        for paths in runs_of_this_machine(workdir, job, inventory_name)
        if not is_live(paths)
        for sentence in restore_keep_links(paths, paths.part().keep)
    ]


def acquire_keep_lock(workdir: str, job: str) -> FileLock:
    """Acquire the lock under which keep folders are moved, and return it. Hosts that share the
    workdir use the same lock.

    A lock is returned even if it could not be acquired: another process may have held it for
    WITHIN_S seconds, or the disk may be full or read-only. The caller asks `is_held()` if it
    matters.
    """
    lock = FileLock(os.path.join(layout.locks_dir(workdir, job), "keep"))
    try:
        make_private_folder(os.path.dirname(lock.path))
        lock.acquire(WITHIN_S)
    except OSError:
        pass
    return lock


def _restore_link(paths: RunPaths, path: str) -> str:
    link, target = os.path.join(paths.cwd, path), layout.keep_dir(paths.workdir, paths.job, path)
    try:
        _make_parents(paths.cwd, path)
        make_private_folder(os.path.dirname(target))
        change = _move_into_keep(link, target)
        make_private_folder(target)
        os.symlink(target, link)
    except OSError as error:
        return "the program replaced the link %s, which cannot be restored: %s" % (path, error)
    return "%s was %s; the link to `keep` is restored" % (path, change)


def _make_parents(cwd: str, path: str) -> None:
    """Make the missing folders above `path`. Raises OSError if one of the folders above `path` is a
    link."""
    folder = cwd
    for name in path.split("/")[:-1]:
        folder = os.path.join(folder, name)
        if os.path.islink(folder):
            raise OSError(errno.ELOOP, "a link is in the way", folder)
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o700)


def _move_into_keep(source: str, target: str) -> str:
    """Move what the program has put at `source` into `keep`. A folder takes the place of `target`,
    unless it is older than `target`. An empty folder is removed if `target` has files. Anything
    else is moved to a path beside `target`, under a name with the date. Return a text that says
    what was at `source` and where it is now."""
    try:
        kind = os.lstat(source).st_mode
    except FileNotFoundError:
        return "removed by the program"
    if not stat.S_ISDIR(kind):
        replacement = "a link to %s" % os.readlink(source) if stat.S_ISLNK(kind) else "a file"
        return "replaced by %s, which was moved to %s" % (
            replacement,
            _move_aside_with_date(source, target),
        )
    new, old = scan_keep_folder(source).newest_mtime, scan_keep_folder(target).newest_mtime
    if old is not None and (new is None or new < old):
        if new is None and remove_if_empty(source):
            return (
                "replaced by an empty folder, which was removed; the folder in `keep` was not "
                "changed"
            )
        return (
            "replaced by a folder (now %s) that is older than the one in `keep`"
            % _move_aside_with_date(source, target)
        )
    change = "replaced by a folder of the program, which was moved into `keep`"
    if os.path.lexists(target) and not remove_if_empty(target):
        change += ", and the earlier folder in `keep` was moved to %s" % _move_aside_with_date(
            target, target
        )
    move(source, target)
    return change


def _move_aside_with_date(source: str, target: str) -> str:
    """Move `source` to an unused path that consists of `target` and the current time, and return
    this path."""
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    aside = unused_name("", "%s.aside-%s" % (target, now))
    move(source, aside)
    return aside


def unused_name(folder: str, preferred_name: str) -> str:
    """Return `preferred_name`. If `folder` already has an entry of that name, append a number that
    makes the name unique."""
    names = [preferred_name] + ["%s-%d" % (preferred_name, number) for number in range(2, 1000)]
    return next(name for name in names if not os.path.lexists(os.path.join(folder, name)))


def remove_if_empty(folder: str) -> bool:
    """Remove the folder if it holds no file. Return True if it was removed."""
    if not is_empty(folder):
        return False
    shutil.rmtree(folder)
    return True


def is_empty(folder: str) -> bool:
    """Return True if there is no file and no link in the folder, at any depth."""
    return next(walk_files(folder, ""), None) is None


def move(source: str, target: str) -> None:
    """Move `source` to `target` by one rename. If they are on different file systems, first copy
    the source to a path beside the target."""
    try:
        os.rename(source, target)
        return
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
