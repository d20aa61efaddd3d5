"""Names the Python environments in <workdir>/.envs, and reads and writes what is recorded about
each. Also removes old environments. The newest environments of each job and host, and those of live
runs, are kept.

<name>.json beside an environment says that the environment is complete, and lists its packages.
Each time a job uses an environment, the file <name>.used/<job>@<hostname> is touched. The hostname
is part of the file's name because hosts may share a workdir.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from contextlib import contextmanager

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterator,
    List,
    Optional,
    Set,
    Tuple,
)
from tfdeploy.agent.host import atomic
from tfdeploy.agent.host.atomic import list_names
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.ownership import check_owners
from tfdeploy.agent.run import unended
from tfdeploy.agent.run.find import jobs_with_runs

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import EnvironmentRecord

PACKAGE = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z"  # PEP 503
VERSION = (  # PEP 440
    r"(?ai)v?(\d+!)?\d+(\.\d+)*([-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?"
    r"(-\d+|[-_.]?(post|rev|r)[-_.]?\d*)?([-_.]?dev[-_.]?\d*)?(\+[a-z0-9]+([-_.][a-z0-9]+)*)?\Z"
)
_NAME = re.compile(r"[0-9a-f]{16}(\.|\Z)")


def interpreter_path(folder: str) -> str:
    return os.path.join(folder, "bin", "python")


def environment_name(digest: str, python_version: str, base_python: str) -> str:
    """Return the name of the environment. Hosts that share a workdir get equal names if they can
    share the environment."""
    parts = (digest, python_version, os.uname().machine, os.path.realpath(base_python))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def find_complete_environment(
    workdir: str, digest: str, python_version: str, base_python: str
) -> Optional[str]:
    """Return the folder of the environment if it is complete. Does not check whether its
    interpreter still runs."""
    folder = checked_folder(workdir, environment_name(digest, python_version, base_python))
    files = (record_path(folder), interpreter_path(folder))
    return folder if all(map(os.path.exists, files)) else None


def checked_folder(workdir: str, name: str) -> str:
    """Return the folder of the environment, and check its owner. Raises UntrustedPath, OSError."""
    check_owners(workdir, ".envs/" + name)
    return os.path.join(layout.envs_dir(workdir), name)


# --- the record


def record_path(folder: str) -> str:
    """Return the path of the environment's record."""
    return folder + ".json"


def read_record(folder: str) -> Optional[EnvironmentRecord]:
    """Return what is recorded about the environment, or None if it is not complete. Entries that
    are not a package with a version are left out. Raises OSError."""
    stored = atomic.read_json(record_path(folder))
    if stored is None:
        return None
    packages = stored.get("packages")
    pins = packages.items() if isinstance(packages, dict) else ()
    return {
        "by": "pip" if stored.get("by") == "pip" else "uv",
        "python": str(stored.get("python")),
        "packages": {name: version for name, version in pins if is_valid_pin(name, version)},
    }


def write_record(folder: str, record: EnvironmentRecord) -> None:
    """Record that the environment is complete. Raises OSError."""
    fields = {"v": wire.VERSION, "time": time.time(), **record}
    atomic.write_json(record_path(folder), fields)


def remove_record(folder: str) -> None:
    """Remove the record, so the environment no longer counts as complete. Raises OSError."""
    atomic.remove_file(record_path(folder))


def is_valid_pin(name: Any, version: Any) -> bool:
    """Return whether the name follows PEP 503 and the version follows PEP 440. Other text must not
    get into the file of constraints, because pip or uv could read it as an option or a URL."""
    are_texts = isinstance(name, str) and isinstance(version, str)
    is_short = are_texts and len(name) + len(version) < 256
    return bool(is_short and re.match(PACKAGE, name) and re.match(VERSION, version))


# --- which environments are kept


def mark_used(folder: str, job: str) -> None:
    """Record that the job uses this environment now."""
    make_private_folder(folder + ".used")
    path = os.path.join(folder + ".used", "%s@%s" % (job, os.uname().nodename))
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    os.utime(path)


def remove_environment(folder: str) -> None:
    """Remove the environment, complete or not. The caller holds its lock."""
    # The record is removed first, so that a partly removed environment does not count as complete.
    remove_record(folder)
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
        if not os.path.exists(record_path(os.path.join(root, name))):
            continue  # the setup of this environment was interrupted, so no job uses it
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
        path
        for job in jobs_with_runs(workdir)
        for path in unended.path_prepends_in_use(workdir, job)
    )
    return {path[len(root) :].split(os.sep)[0] for path in folders if path.startswith(root)}
