"""Lists the copies of the operator's secret files that are still in releases, data sets and runs on
this host. Reads only.

A secret file holds a value of `secrets:` or a private key. The operator's machine sends the paths
of the files, and never the value of a secret.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Dict, Iterator, List, Tuple
from tfdeploy.agent.call import Call
from tfdeploy.agent.errors import VerbError, is_safe_name, is_safe_relative_path
from tfdeploy.agent.host.atomic import list_names, read_json
from tfdeploy.agent.run.find import host_folders, run_names
from tfdeploy.agent.run.folder import RunPaths

# At most this many paths are used for the code of each job, and as many for its data. Further paths
# are ignored.
MOST_PATHS = 1000


class SecretPaths:
    """The paths of secret files that the operator's machine sent. `code`: {job: paths below its
    code folder}. `data`: {job: paths in its data sets, as SET/PATH}. Raises VerbError
    bad_argument."""

    def __init__(self, call: Call) -> None:
        self.code: Dict[str, List[str]] = defaultdict(list)
        self.data: Dict[str, List[str]] = defaultdict(list)
        paths_by_job = call.table("secret_files")
        self.jobs = sorted(paths_by_job)
        for job, paths in paths_by_job.items():
            if not is_safe_name(job) or not isinstance(paths, dict):
                raise VerbError(
                    "bad_argument", "secret_files %.200r is not {job: {code, data}}" % (job,)
                )
            for kind, paths_of_kind in (("code", self.code), ("data", self.data)):
                checked_paths = [_checked_path(path) for path in paths.get(kind) or []]
                paths_of_kind[job] = checked_paths[:MOST_PATHS]


def _checked_path(path: object) -> str:
    if not isinstance(path, str) or not is_safe_relative_path(path):
        raise VerbError(
            "bad_argument", "secret_files: the path %.200r leads out of its folder" % (path,)
        )
    return path


def list_secret_files(folder: str, paths: List[str]) -> List[str]:
    """Return the absolute paths of those of `paths` at which `folder` has a regular file. A link
    does not count, nor does a path through a link."""
    return [os.path.join(folder, path) for path in paths if _is_file(folder, path)]


def releases_with_secrets(
    workdir: str, job: str, paths: List[str]
) -> Iterator[Tuple[str, List[str]]]:
    """Yield (release, the absolute paths of its secret files) for each release that has any."""
    folder = layout.releases_dir(workdir, job)
    for name in filter(is_safe_name, list_names(folder) if paths else ()):
        secret_paths = list_secret_files(os.path.join(folder, name), paths)
        if secret_paths:
            yield name, secret_paths


def paths_in_job(workdir: str, job: str, secret: SecretPaths) -> Iterator[str]:
    """Yield the absolute paths of all secret files in the job's folder."""
    for _, paths in releases_with_secrets(workdir, job, secret.code[job]):
        yield from paths
    yield from list_secret_files(
        os.path.join(layout.job_dir(workdir, job), "data"), secret.data[job]
    )
    if secret.code[job]:
        for run in run_names(workdir, job):
            yield from paths_in_cwd(workdir, job, run, secret)


def paths_in_run(workdir: str, job: str, run: str, secret: SecretPaths) -> Iterator[str]:
    """Yield the absolute paths of the secret files in the run's working directory (cwd/) and in its
    release."""
    if not secret.code[job]:
        return
    yield from paths_in_cwd(workdir, job, run, secret)
    used = {_used_release(paths) for paths in host_folders(workdir, job, run)}
    for name, paths in releases_with_secrets(workdir, job, secret.code[job]):
        if name in used:
            yield from paths


def paths_in_cwd(workdir: str, job: str, run: str, secret: SecretPaths) -> List[str]:
    return list_secret_files(layout.cwd_dir(workdir, job, run), secret.code[job])


def _used_release(paths: RunPaths) -> object:
    try:
        return (read_json(paths.file(layout.PART)) or {}).get("release")
    except OSError:
        return None


def _is_file(folder: str, path: str) -> bool:
    parent = folder
    try:
        for name in path.split("/")[:-1]:
            parent = os.path.join(parent, name)
            if not stat.S_ISDIR(os.lstat(parent).st_mode):
                return False
        return stat.S_ISREG(os.lstat(os.path.join(folder, path)).st_mode)
    except OSError:
        return False
