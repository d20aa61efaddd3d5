"""Clean up after a run on this host, once none of its processes is alive: remove the run's secrets
and its folder, and list the files that the run left outside its keep folders."""

from __future__ import annotations

import itertools
import os
import stat
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import Iterator, List
from tfdeploy.agent.host.atomic import remove_file, remove_temporaries
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.run.folder import SECRET_FILES, RunPaths

# A file that tells a launch to stop preparing a run has the name of `uncommitted_mark_file` with
# this suffix. The file without the suffix marks the run as uncommitted (uncommitted.py).
ABORT = "@abort"
_MAX_NAMED = 100  # `list_new_files` returns at most this many paths
_TRIES = 5  # how often to try to remove a folder
_TEMPORARY_AGE_S = 1.0  # younger temporary files stay: their writers may still be alive
_FOLDERS_S = 10.0  # how long acquire_folders_lock waits for the lock


def remove_secret_files(paths: RunPaths) -> None:
    """Remove the files with the run's secrets. Also remove the temporary files with secrets, which
    stay on the disk if a process is killed while it prepares the run."""
    for path in map(paths.file, SECRET_FILES):
        remove_temporaries(path)
        remove_file(path, if_possible=True)


def restore_keep_links(paths: RunPaths, task: str = "") -> None:
    """Restore the links to `keep` that the program replaced. Report the changes in the log of
    `task`, or in that of the first task if `task` is ""."""
    part = paths.part()
    if paths.replaced_keep_links(part.keep):
        # Imported only here, because these functions are seldom needed, and their import would slow
        # down the start of each minder.
        from tfdeploy.agent.run import keep_links

        keep_links.restore_and_log_links(paths, part, task)


def remove_partial_orders(paths: RunPaths) -> None:
    """Remove incomplete orders for the minder. An order is a file by which a session tells the
    minder what to do. The session writes it to a temporary file first. If the session dies before
    it has renamed this file, the file remains. A file younger than _TEMPORARY_AGE_S stays, because
    its writer may still be alive."""
    try:
        for each in os.listdir(paths.host_dir):
            path = paths.file(each)
            if (
                each.startswith(".word.")
                and each.endswith(".tmp")
                and os.stat(path).st_mtime < time.time() - _TEMPORARY_AGE_S
            ):
                os.unlink(path)
    except OSError:
        pass  # another process has removed the file or the folder


def remove_uncommitted_marks(paths: RunPaths) -> None:
    """Remove the files that mark a run as uncommitted. Called, for example, when the run is
    committed or has ended."""
    for path in (paths.uncommitted_mark_file, paths.uncommitted_mark_file + ABORT):
        remove_file(path, if_possible=True)


def restore_keep_if_aborted(paths: RunPaths) -> None:
    """Undo the renaming of keep folders by `launch --fresh`, if the launch was rolled back. Raises
    OSError."""
    if os.path.exists(paths.file(layout.ASIDE)):
        from tfdeploy.agent.run import keep_aside  # imported only here, because it is seldom needed

        keep_aside.restore_keep_if_aborted(paths)


def remove_run(paths: RunPaths) -> None:
    """Remove this host's folder of a run. If no other host has a folder of the run, remove the
    run's folder too."""
    import shutil  # imported only here, because it would delay the start of each minder by 1 ms

    restore_keep_if_aborted(paths)
    remove_secret_files(paths)
    hosts, gone = os.path.dirname(paths.host_dir), "gone-%s" % os.urandom(8).hex()
    gone = os.path.join(paths.run_dir, gone)
    with acquire_folders_lock(paths):
        try:
            # The folder is first renamed and then deleted. A rename is one step, so if a new launch
            # with the same run name makes its own folder meanwhile, that folder is not deleted.
            os.rename(paths.host_dir, gone)
        except OSError:
            shutil.rmtree(paths.host_dir, ignore_errors=True)
        try:
            os.rmdir(hosts)
        except OSError:
            pass  # `hosts` contains another host's folder, or another host has removed `hosts`
        if not os.path.isdir(hosts):
            shutil.rmtree(paths.run_dir, ignore_errors=True)
        remove_uncommitted_marks(paths)
    # A minder that ends because of this removal may still write to the folder. So removing the
    # folder may fail and is repeated.
    for _ in range(_TRIES):
        shutil.rmtree(gone, ignore_errors=True)
        if not os.path.lexists(gone):
            break


def acquire_folders_lock(paths: RunPaths) -> FileLock:
    """Acquire the lock under which folders of runs are made and removed, and return it. Hosts that
    share the workdir use the same lock.

    The lock is returned even if it could not be acquired, because its file cannot be opened or
    another host, which may be dead, has held it for _FOLDERS_S seconds. A caller that must not
    continue without the lock asks `is_held()`.
    """
    lock = FileLock(layout.folders_lock_file(paths.workdir, paths.job))
    try:
        lock.acquire(_FOLDERS_S)
    except OSError:
        pass
    return lock


def list_new_files(paths: RunPaths, part: wire.HostPart) -> List[str]:
    """Return the first 100 paths that `find_new_paths` yields."""
    return list(itertools.islice(find_new_paths(paths, part), _MAX_NAMED))


def find_new_paths(paths: RunPaths, part: wire.HostPart) -> Iterator[str]:
    """Yield the paths of files in cwd/ that are new or differ from the release from which cwd/ was
    copied. Files in keep folders are left out. The files of each folder are sorted."""
    release = layout.release_dir(paths.workdir, paths.job, part.release)
    skipped = {*part.keep, *part.links}
    for folder, folders, names in os.walk(paths.cwd):
        relative = os.path.relpath(folder, paths.cwd)
        prefix = "" if relative == "." else relative + "/"
        folders[:] = sorted(
            name for name in folders if name != "__pycache__" and prefix + name not in skipped
        )
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in sorted(names + links):
            path = prefix + name
            if path not in skipped and _is_new_or_changed(
                os.path.join(folder, name), os.path.join(release, path)
            ):
                yield path


def _is_new_or_changed(path: str, original: str) -> bool:
    try:
        new = os.lstat(path)
    except OSError:
        return False
    try:
        old = os.lstat(original)
    except OSError:
        return True
    is_same = (new.st_size, new.st_mtime_ns) == (old.st_size, old.st_mtime_ns)
    return not is_same and not stat.S_ISLNK(new.st_mode)
