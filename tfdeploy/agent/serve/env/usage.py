"""Decides which Python environments are kept: the newest ones of each job and host, and those of
live runs. Removes the others.

Each time a job uses an environment, the file <name>.used/<job>@<hostname> is touched. The hostname
is part of the file's name because hosts may share a workdir.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Dict, Iterator, List, Set, Tuple
from tfdeploy.agent.host.atomic import list_names
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.run import unended
from tfdeploy.agent.run.find import job_names
from tfdeploy.agent.serve.env import record as env_record

_NAME = re.compile(r"[0-9a-f]{16}(\.|\Z)")


def mark_used(folder: str, job: str) -> None:
    """Record that the job uses this environment now."""
    make_private_folder(folder + ".used")
    path = os.path.join(folder + ".used", "%s@%s" % (job, os.uname().nodename))
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    os.utime(path)


def remove_environment(folder: str) -> None:
    """Remove the environment, complete or not. The caller holds its lock."""
    # The record is removed first, so that a partly removed environment does not count as complete.
    env_record.remove_record(folder)
    shutil.rmtree(folder, ignore_errors=True)


def remove_old_environments(workdir: str, current: str, keep_count: int) -> None:
    """Remove all environments, with four exceptions: `current`; the `keep_count` newest
    environments of each job and host; environments of live runs; and environments that a setup is
    making now."""
    for name in list_removable(workdir, keep_count) - {current}:
        with hold_lock_if_free(workdir, name) as is_free:
            if is_free:
                remove_with_side_files(os.path.join(layout.envs_dir(workdir), name))


def list_removable(workdir: str, keep_count: int) -> Set[str]:
    """Return the environments that are not in use, and not among the `keep_count` newest ones of
    any job and host. Raises OSError."""
    root = layout.envs_dir(workdir)
    names = {entry[:16] for entry in os.listdir(root) if _NAME.match(entry)}
    return names - _newest_of_each_job(root, names, keep_count) - environments_in_use(workdir)


def jobs_that_used(folder: str) -> Set[str]:
    """Return the jobs that have used this environment."""
    return {name.partition("@")[0] for name in list_names(folder + ".used")}


@contextmanager
def hold_lock_if_free(workdir: str, name: str) -> Iterator[bool]:
    """Hold the environment's lock during the `with` block. Yields False if a setup holds the lock
    now."""
    with FileLock(os.path.join(layout.envs_dir(workdir), name + ".lock")) as lock:
        yield lock.acquire(0)


def remove_with_side_files(folder: str) -> None:
    """Remove the environment and all files that belong to it. The caller holds its lock."""
    remove_environment(folder)
    shutil.rmtree(folder + ".used", ignore_errors=True)
    os.unlink(folder + ".lock")


def _newest_of_each_job(root: str, names: Set[str], keep_count: int) -> Set[str]:
    uses_by_user: Dict[str, List[Tuple[float, str]]] = {}
    for name in names:
        if not os.path.exists(env_record.record_path(os.path.join(root, name))):
            continue  # its setup was interrupted, so no job uses it
        folder = os.path.join(root, name + ".used")
        for user in list_names(folder):
            uses_by_user.setdefault(user, []).append(
                (os.stat(os.path.join(folder, user)).st_mtime, name)
            )
    return {
        name
        for uses in uses_by_user.values()
        for _, name in sorted(uses, reverse=True)[:keep_count]
    }


def environments_in_use(workdir: str) -> Set[str]:
    """Return the names of the environments that unfinished runs use. All runs in this workdir
    count, of any job and host."""
    root = layout.envs_dir(workdir) + os.sep
    folders = (
        path for job in job_names(workdir) for path in unended.path_prepends_in_use(workdir, job)
    )
    return {path[len(root) :].split(os.sep)[0] for path in folders if path.startswith(root)}
