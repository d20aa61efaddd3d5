"""What of a workdir may be removed, thing by thing, and what stays and why. Reads only.

Asked twice: for the list, and again for each thing at the moment of its removal, because a list grows old.
"""

from __future__ import annotations

import os
import stat

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Collection, Iterator, List, Optional, Set
from tfdeploy.agent.errors import NAME
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.host.removal import GONE
from tfdeploy.agent.ownership import NotOurs, check
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.run import over, unended
from tfdeploy.agent.run.find import list_names, run_names
from tfdeploy.agent.serve import data_record, data_versions, env_usage, release_retention, secret_files

KEPT_RELEASES = 5
KEPT_ENVIRONMENTS = 1  # of each job and host: what its next launch would take
_BUSY = "another operation works on job %s in this workdir"


class Thing(NamedTuple):
    """`kind`: run, release, data, environment, half or secret file. `name`: for a half or a secret
    file, its path below the job's folder, or below the workdir. `path`: its folder or file.
    `ended`: when a run ended. `stays`: why the thing cannot be removed, or "". `size`: in bytes, on
    the disk."""

    kind: str
    job: str
    name: str
    path: str
    ended: Optional[float] = None
    stays: str = ""
    live: bool = False
    size: int = 0


def jobs_here(workdir: str) -> List[str]:
    """The jobs of this workdir that are ours and no links. Each was locked once, so a folder of the user's that has `runs` or
    `data` too is none."""
    found = []
    for name in list_names(workdir):
        try:
            check(workdir, *layout.of_job(name))
        except (NotOurs, OSError):
            continue
        if NAME.match(name) and any(_is_folder(os.path.join(workdir, name, each)) for each in ("locks", "fences")):
            found.append(name)
    return found


def is_busy(workdir: str, job: str, own: str = "") -> str:
    """Why nothing but runs may go now: a session other than the one with the lock `own` works on the job, on this host or
    on one that shares the workdir. "": none does."""
    folder = layout.locks_dir(workdir, job)
    files = (os.path.join(folder, name) for name in list_names(folder) if name != "folders")
    return _BUSY % job if any(path != own and is_locked(path) for path in files) else ""


def runs(workdir: str, job: str, told: str) -> Iterator[Thing]:
    """All runs of the job. One of which there are only halves is a half."""
    marked = over.marked_runs(workdir, job)
    for run in run_names(workdir, job):
        found = run_of(workdir, job, run, told, marked)
        if found is not None:
            yield found


def run_of(workdir: str, job: str, run: str, told: str, marked: Set[str]) -> Optional[Thing]:
    """None: it is no folder. A run with nothing of any host is a half."""
    path = layout.run_dir(workdir, job, run)
    if not _is_folder(path):
        return None
    now = over.standing(workdir, job, run, told, marked)
    if now.ended is None and not now.stays:
        return Thing("half", job, "runs/" + run, path)
    return Thing("run", job, run, path, now.ended, now.stays, now.live)


def releases(workdir: str, job: str, secret: List[str]) -> Iterator[Thing]:
    """Yield the releases that a sync would remove, and those with a secret file, also if a run
    still uses them.

    `secret`: paths of secret files in the code.
    """
    folder = layout.releases_dir(workdir, job)
    if not os.path.isdir(folder):
        return
    surplus = release_retention.surplus(workdir, job, KEPT_RELEASES)
    with_secret = {name for name, _ in secret_files.releases(workdir, job, secret)}
    in_use = with_secret.intersection(unended.releases(workdir, job)) if with_secret else set()
    for name in sorted(surplus | with_secret):
        if NAME.match(name):
            stays = "a run that has not ended uses it, and it holds a secret file" if name in in_use else ""
            yield Thing("release", job, name, os.path.join(folder, name), None, stays, bool(stays))


def secret_copies(workdir: str, job: str, secret: List[str], told: str, marked: Set[str]) -> Iterator[Thing]:
    """Yield the secret files in the folders of runs, as "runs/RUN/cwd/PATH". They are removed
    without their run."""
    for run in run_names(workdir, job) if secret else ():
        cwd = layout.cwd_dir(workdir, job, run)
        found = list(secret_files.present(cwd, secret))
        thing = run_of(workdir, job, run, told, marked) if found else None
        if thing is not None:
            for path in found:
                name = "runs/%s/cwd/%s" % (run, path)
                yield thing._replace(kind="secret file", name=name, path=os.path.join(cwd, path), ended=None)


def data_sets(workdir: str, job: str, named: Collection[str]) -> Iterator[Thing]:
    """Those that are not `named` and that no run reads which has not ended."""
    read = unended.data_sets(workdir, job)
    parent = os.path.dirname(layout.data_dir(workdir, job, "x"))
    for name in list_names(parent):
        path = os.path.join(parent, name)
        if name not in named and NAME.match(name) and _is_folder(path) and data_record.is_ours(path):
            stays = "a run that has not ended reads it" if read is None or name in read else ""
            yield Thing("data", job, name, path, None, stays, bool(stays))


def beside_data(folder: str) -> List[str]:
    """What belongs to a data set besides its folder, as far as it is there."""
    versions = [data_versions.beside(folder, what) for what in ("new", "listing", "old", data_versions.NEXT)]
    files = [folder + ".tfdeploy", folder + ".json", versions[-1] + ".json"]
    return [path for path in versions + files if os.path.lexists(path)]


def halves(workdir: str, job: str, ended: Collection[str]) -> Iterator[Thing]:
    """What something that was killed left in the job's folders, and in those of its `ended` runs."""
    for parent in ["releases", "runs", "data", *("runs/" + run for run in ended)]:
        folder = os.path.join(layout.job_dir(workdir, job), *parent.split("/"))
        for name in list_names(folder):
            path = os.path.join(folder, name)
            in_run = "/" in parent and name.startswith(over.OF_RUN_HALVES)
            if (in_run or over.is_half(name)) and not os.path.islink(path):
                yield Thing("half", job, "%s/%s" % (parent, name), path)


def environments(workdir: str, jobs: Optional[Collection[str]] = None) -> Iterator[Thing]:
    """Those that may go. `jobs`: only those that no other job has used."""
    root = layout.envs_dir(workdir)
    if not os.path.isdir(root):
        return
    check(workdir, ".envs")
    if any(unended.has_unreadable(workdir, job) for job in jobs_here(workdir)):
        return
    for name in sorted(env_usage.unused(workdir, KEPT_ENVIRONMENTS)):
        path = os.path.join(root, name)
        if jobs is None or env_usage.users(path) <= set(jobs):
            yield Thing("environment", "", name, path)


def workdir_halves(workdir: str) -> Iterator[Thing]:
    """What a removal that was killed left of environments and of all of tfdeploy."""
    for folder, above in ((workdir, ""), (layout.envs_dir(workdir), ".envs/")):
        for name in list_names(folder):
            if name.startswith(GONE) and not os.path.islink(os.path.join(folder, name)):
                yield Thing("half", "", above + name, os.path.join(folder, name))


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
