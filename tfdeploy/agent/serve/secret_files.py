"""Files of the operator's secrets that older releases, data sets and runs of this host have. Reads only.

The operator's machine says which paths these are. No value of a secret comes here to be looked for.
"""

from __future__ import annotations

import os
import stat

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Dict, Iterator, List, Tuple
from tfdeploy.agent.errors import NAME, VerbError
from tfdeploy.agent.host.atomic import read_json
from tfdeploy.agent.run.find import host_names, list_names, run_names
from tfdeploy.agent.serve.call import Call

MOST = 1000
CODE, DATA = "code", "data"


class SecretPaths:
    """By job, as the operator's machine sent them: paths below its code, and `data set/path`. Raises VerbError."""

    def __init__(self, call: Call) -> None:
        self._of: Dict[str, Dict[str, List[str]]] = {}
        for job, found in call.table("secret_files").items():
            if not NAME.match(job) or not isinstance(found, dict):
                raise VerbError("bad_argument", "secret_files %.200r is not {job: {code, data}}" % (job,))
            self._of[job] = {what: [_checked(path) for path in found.get(what) or []][:MOST] for what in (CODE, DATA)}

    @property
    def jobs(self) -> List[str]:
        return sorted(self._of)

    def code(self, job: str) -> List[str]:
        return self._of.get(job, {}).get(CODE, [])

    def data(self, job: str) -> List[str]:
        return self._of.get(job, {}).get(DATA, [])


def _checked(path: object) -> str:
    if not isinstance(path, str) or "\0" in path or any(step in ("", ".", "..") for step in path.split("/")):
        raise VerbError("bad_argument", "secret_files: the path %.200r leads out of its folder" % (path,))
    return path


def held(folder: str, paths: List[str]) -> Iterator[str]:
    """Those of the paths that are files in this folder. No link is followed."""
    return (path for path in paths if _is_file(folder, path))


def releases(workdir: str, job: str, paths: List[str]) -> Iterator[Tuple[str, List[str]]]:
    """(name of a release, its secret files) of each release that has one."""
    folder = layout.releases_dir(workdir, job)
    for name in list_names(folder) if paths else ():
        found = list(held(os.path.join(folder, name), paths)) if NAME.match(name) else []
        if found:
            yield name, found


def in_job(workdir: str, job: str, secret: SecretPaths) -> Iterator[str]:
    """All of them that lie in the job's folder."""
    for release, paths in releases(workdir, job, secret.code(job)):
        yield from (os.path.join(layout.release_dir(workdir, job, release), path) for path in paths)
    folder = os.path.join(layout.job_dir(workdir, job), "data")
    yield from (os.path.join(folder, path) for path in held(folder, secret.data(job)))
    if secret.code(job):
        for run in run_names(workdir, job):
            yield from in_cwd(workdir, job, run, secret)


def in_run(workdir: str, job: str, run: str, secret: SecretPaths) -> Iterator[str]:
    """Those in the run's folder, and in its release."""
    if not secret.code(job):
        return
    yield from in_cwd(workdir, job, run, secret)
    used = {_release_of(workdir, job, run, host) for host in host_names(workdir, job, run)}
    for name, paths in releases(workdir, job, secret.code(job)):
        if name in used:
            yield from (os.path.join(layout.release_dir(workdir, job, name), path) for path in paths)


def in_cwd(workdir: str, job: str, run: str, secret: SecretPaths) -> Iterator[str]:
    cwd = layout.cwd_dir(workdir, job, run)
    return (os.path.join(cwd, path) for path in held(cwd, secret.code(job)))


def _release_of(workdir: str, job: str, run: str, host: str) -> object:
    try:
        return (read_json(layout.part_file(workdir, job, run, host)) or {}).get("release")
    except OSError:
        return None


def _is_file(folder: str, path: str) -> bool:
    place, steps = folder, path.split("/")
    try:
        for step in steps[:-1]:
            place = os.path.join(place, step)
            if not stat.S_ISDIR(os.lstat(place).st_mode):
                return False
        return stat.S_ISREG(os.lstat(os.path.join(folder, path)).st_mode)
    except OSError:
        return False
