"""Which environments stay: the last few of each job and host, and those of runs that are alive.
Removes the others.

Each use is a file <name>.used/<job>@<hostname>, touched at each setup: hosts may share a workdir.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Dict, Iterator, List, Set, Tuple
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.host.private_folder import make_private
from tfdeploy.agent.run import unended
from tfdeploy.agent.run.find import job_names, list_names
from tfdeploy.agent.serve.env import record as env_record

_NAME = re.compile(r"[0-9a-f]{16}(\.|\Z)")


def mark(folder: str, job: str) -> None:
    """Records that the job uses this environment now."""
    make_private(folder + ".used")
    path = os.path.join(folder + ".used", "%s@%s" % (job, os.uname().nodename))
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    os.utime(path)


def remove(folder: str) -> None:
    """Removes the environment, whole or not. The caller holds its lock."""
    env_record.forget(folder)  # first
    shutil.rmtree(folder, ignore_errors=True)


def remove_old(workdir: str, current: str, keep: int) -> None:
    """Leaves `current`, the `keep` newest of every job and host, those of live runs, and what is
    being made."""
    for name in unused(workdir, keep) - {current}:
        with locked_if_free(workdir, name) as is_free:
            if is_free:
                discard(os.path.join(layout.envs_dir(workdir), name))


def unused(workdir: str, keep: int) -> Set[str]:
    """The environments that are neither in use nor among the `keep` newest of a job and host.
    Raises OSError."""
    root = layout.envs_dir(workdir)
    names = {entry[:16] for entry in os.listdir(root) if _NAME.match(entry)}
    return names - _newest(root, names, keep) - in_use(workdir)


def users(folder: str) -> Set[str]:
    """The jobs that have used this environment."""
    return {name.partition("@")[0] for name in list_names(folder + ".used")}


@contextmanager
def locked_if_free(workdir: str, name: str) -> Iterator[bool]:
    """Holds its lock; false: a setup makes it now."""
    with FileLock(os.path.join(layout.envs_dir(workdir), name + ".lock")) as lock:
        yield lock.acquire(0)


def discard(folder: str) -> None:
    """Removes the environment and all that belongs to it. The caller holds its lock."""
    remove(folder)
    shutil.rmtree(folder + ".used", ignore_errors=True)
    os.unlink(folder + ".lock")


def _newest(root: str, names: Set[str], keep: int) -> Set[str]:
    wanted: Dict[str, List[Tuple[float, str]]] = {}
    for name in names:
        if not os.path.exists(env_record.path_of(os.path.join(root, name))):
            continue  # interrupted: no job uses it
        folder = os.path.join(root, name + ".used")
        for user in list_names(folder):
            wanted.setdefault(user, []).append((os.stat(os.path.join(folder, user)).st_mtime, name))
    return {name for uses in wanted.values() for _, name in sorted(uses, reverse=True)[:keep]}


def in_use(workdir: str) -> Set[str]:
    """Names of the environments of all runs that have not ended, of any job and host in this
    workdir."""
    root = layout.envs_dir(workdir) + os.sep
    folders = (path for job in job_names(workdir) for path in unended.path_prepends(workdir, job))
    return {path[len(root) :].split(os.sep)[0] for path in folders if path.startswith(root)}
