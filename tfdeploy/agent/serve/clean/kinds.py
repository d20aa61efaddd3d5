"""Lists the items that may be removed from a workdir, such as runs and releases, with their paths.
If an item must be kept, its `kept_because` says why. This module removes nothing.

A list may soon be outdated. Therefore the caller asks again about each item just before it removes
that item.
"""

from __future__ import annotations

import os
from functools import cached_property

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import (
    Callable,
    Collection,
    Dict,
    Iterator,
    List,
    Optional,
    Set,
    Tuple,
)
from tfdeploy.agent.call import SessionContext
from tfdeploy.agent.errors import is_safe_name
from tfdeploy.agent.host import removal
from tfdeploy.agent.host.atomic import list_names
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.ownership import UntrustedPath, check_owners
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.run import over, secret_files, unended
from tfdeploy.agent.run.find import run_names
from tfdeploy.agent.seen import AGENTS
from tfdeploy.agent.serve import lock
from tfdeploy.agent.serve.datasets import versions as data_versions
from tfdeploy.agent.serve.env import environments
from tfdeploy.agent.serve.release import store as release_store

# For each job and host, this many of the newest environments are kept for the job's next launch.
KEPT_ENVIRONMENTS = 1
_USED_WITH_SECRET = "the release holds a secret file, but a run that has not ended uses the release"
_BUSY = "another operation works on job %s in this workdir"
_JOB_FOLDERS = ("releases", "data", "keep")
# Folders are removed in this order. The agent's folder comes last, because the code that removes
# them is in it.
_WORKDIR_FOLDERS = {
    ".envs": "environments",
    layout.UNCOMMITTED: "rest",
    layout.AUDIT: "audit log",
    AGENTS: "agent",
}


class RemovableItem(NamedTuple):
    """One item that may be removed. `name`: the item's name. The name of a secret file, or of a
    leftover of an interrupted operation (kind "half"), is its path below the job's folder or the
    workdir. `path`: the item's folder or file. `ended`: when the run ended, in UTC seconds.
    `kept_because`: why the item cannot be removed, or "". `size`: bytes on disk."""

    kind: str
    job: str
    name: str
    path: str = ""
    ended: Optional[float] = None
    kept_because: str = ""
    is_live: bool = False
    size: int = 0


class CleanScope:
    """The part of a workdir that one call covers. `job`: the job whose items are covered; "" means
    the items that belong to no job. `jobs`: names of jobs; an environment is covered if only these
    jobs have used it. If `jobs` is None, all environments are covered. `kept_data_sets`: names of
    the data sets to keep; all other data sets are covered. If `kept_data_sets` is None, no data
    sets are covered. `secret_paths`: paths of secret files in the code."""

    def __init__(
        self,
        context: SessionContext,
        job: str = "",
        jobs: Optional[Collection[str]] = None,
        kept_data_sets: Optional[Collection[str]] = None,
        secret_paths: Collection[str] = (),
    ) -> None:
        self.workdir, self.host, self.job = context.workdir, context.host, job
        self.jobs, self.kept_data_sets, self.secret_paths = jobs, kept_data_sets, list(secret_paths)
        self.own_lock_path = lock.held_lock_path(context, job) if job else ""

    @cached_property
    def runs_with_processes(self) -> Set[str]:
        """Return the runs of the job that had a live process on this host when this method was
        first called."""
        return over.find_runs_with_processes(self.workdir, self.job)

    @property
    def job_dir(self) -> str:
        return layout.job_dir(self.workdir, self.job)

    def busy_reason(self) -> str:
        """Return a text that says that another session works on the job, or "" if none does."""
        return busy_reason(self.workdir, self.job, self.own_lock_path) if self.job else ""


def list_jobs(workdir: str) -> List[str]:
    """List the jobs in this workdir whose folders belong to this user or root and are not links. A
    folder counts as a job's only if it has `locks` or `fences` in it, so a user's own folder with
    `runs` or `data` in it does not count."""
    jobs = []
    for name in list_names(workdir):
        try:
            check_owners(workdir, *layout.job_folders(name))
        except (UntrustedPath, OSError):
            continue
        if is_safe_name(name) and any(
            _is_folder(os.path.join(workdir, name, each)) for each in ("locks", "fences")
        ):
            jobs.append(name)
    return jobs


def busy_reason(workdir: str, job: str, own_lock_path: str = "") -> str:
    """Return a text that says that another session works on the job, or "" if none does. Sessions
    of hosts that share the workdir count too. While another session works on the job, only runs may
    be removed. `own_lock_path`: the lock file of this session."""
    folder = layout.locks_dir(workdir, job)
    files = (os.path.join(folder, name) for name in list_names(folder) if name != "folders")
    return _BUSY % job if any(path != own_lock_path and is_locked(path) for path in files) else ""


# --- the items of each kind


def list_runs(scope: CleanScope) -> Iterator[RemovableItem]:
    """Yield all runs of the job. If no host has complete files of a run, that run is yielded as an
    incomplete item (kind "half")."""
    return filter(None, (find_run(scope, run) for run in run_names(scope.workdir, scope.job)))


def find_run(scope: CleanScope, run: str) -> Optional[RemovableItem]:
    """Return the run as an item, or None if the run has no folder."""
    path = layout.run_dir(scope.workdir, scope.job, run)
    if not _is_folder(path):
        return None
    standing = over.find_removal_state(
        scope.workdir, scope.job, run, scope.host, scope.runs_with_processes
    )
    if standing.ended_time is None and not standing.blocking_reason:
        return RemovableItem("half", scope.job, "runs/" + run, path)
    return RemovableItem(
        "run",
        scope.job,
        run,
        path,
        standing.ended_time,
        standing.blocking_reason,
        standing.may_be_alive,
    )


def _list_removable_releases(scope: CleanScope) -> Iterator[RemovableItem]:
    """Yield the releases that a sync would remove, and all releases with a secret file, even those
    that a run still uses."""
    folder = layout.releases_dir(scope.workdir, scope.job)
    if not os.path.isdir(folder):
        return
    surplus = release_store.list_surplus_releases(scope.workdir, scope.job)
    with_secret = {
        name
        for name, _ in secret_files.releases_with_secrets(
            scope.workdir, scope.job, scope.secret_paths
        )
    }
    in_use = set(unended.releases_in_use(scope.workdir, scope.job)) if with_secret else set()
    for name in sorted(filter(is_safe_name, surplus | with_secret)):
        why = _USED_WITH_SECRET if name in with_secret & in_use else ""
        yield RemovableItem(
            "release", scope.job, name, os.path.join(folder, name), None, why, bool(why)
        )


def _list_secret_copies(scope: CleanScope) -> Iterator[RemovableItem]:
    """Yield the secret files in the folders of runs, each with the name "runs/RUN/cwd/PATH". Such a
    file is removed alone, while the rest of the run stays."""
    for run in run_names(scope.workdir, scope.job) if scope.secret_paths else ():
        cwd = layout.cwd_dir(scope.workdir, scope.job, run)
        copies = secret_files.list_secret_files(cwd, scope.secret_paths)
        item = find_run(scope, run) if copies else None
        if item is not None:
            for path in copies:
                name = os.path.relpath(path, scope.job_dir)
                yield item._replace(kind="secret file", name=name, path=path, ended=None)


def _list_unkept_data_sets(scope: CleanScope) -> Iterator[RemovableItem]:
    if scope.kept_data_sets is None:
        return
    in_use = unended.data_sets_in_use(scope.workdir, scope.job)
    for name in list_names(os.path.join(scope.job_dir, "data")):
        path = layout.data_dir(scope.workdir, scope.job, name)
        if (
            name not in scope.kept_data_sets
            and is_safe_name(name)
            and _is_folder(path)
            and data_versions.is_made_by_tfdeploy(path)
        ):
            why = (
                "a run that has not ended reads the data set"
                if in_use is None or name in in_use
                else ""
            )
            yield RemovableItem("data", scope.job, name, path, None, why, bool(why))


def _list_incomplete(scope: CleanScope) -> Iterator[RemovableItem]:
    """If the scope has a job, yield the leftovers of interrupted operations in the job's folders
    and in the folders of its ended runs. If the scope has no job, yield the leftovers of
    interrupted removals in the workdir and in the folder of the environments."""
    if not scope.job:
        for folder, name_prefix in (
            (scope.workdir, ""),
            (layout.envs_dir(scope.workdir), ".envs/"),
        ):
            yield from _list_incomplete_in(scope, folder, name_prefix, (removal.GONE,))
        return
    for parent in ("releases", "runs", "data"):
        yield from _list_incomplete_in(scope, os.path.join(scope.job_dir, parent), parent + "/")
    for run in run_names(scope.workdir, scope.job):
        partials = list(
            _list_incomplete_in(
                scope,
                layout.run_dir(scope.workdir, scope.job, run),
                "runs/%s/" % run,
                over.INCOMPLETE_RUN_PREFIXES,
            )
        )
        item = find_run(scope, run) if partials else None
        if item is not None and item.kind == "run" and not item.kept_because:
            yield from partials


def _list_incomplete_in(
    scope: CleanScope, folder: str, name_prefix: str, partial_prefixes: Tuple[str, ...] = ()
) -> Iterator[RemovableItem]:
    for name in list_names(folder):
        path = os.path.join(folder, name)
        is_partial = name.startswith(partial_prefixes) or (
            bool(scope.job) and over.is_incomplete_name(name)
        )
        if is_partial and not os.path.islink(path):
            yield RemovableItem("half", scope.job, name_prefix + name, path)


def _list_removable_environments(scope: CleanScope) -> Iterator[RemovableItem]:
    root = layout.envs_dir(scope.workdir)
    if not os.path.isdir(root):
        return
    check_owners(scope.workdir, ".envs")
    if any(unended.has_unreadable_run(scope.workdir, job) for job in list_jobs(scope.workdir)):
        return
    for name in sorted(environments.list_removable(scope.workdir, KEPT_ENVIRONMENTS)):
        path = os.path.join(root, name)
        if scope.jobs is None or environments.jobs_that_used(path) <= set(scope.jobs):
            yield RemovableItem("environment", "", name, path)


def _files_beside_data_set(path: str) -> List[str]:
    versions = [
        data_versions.hidden_sibling_path(path, suffix)
        for suffix in ("new", "listing", "old", data_versions.NEXT)
    ]
    return [*versions, path + ".tfdeploy", path + ".json", versions[-1] + ".json"]


# --- the table


class ItemKind(NamedTuple):
    """How to handle one kind of item. `list_existing`: lists the items that exist.
    `is_listed_if_busy`: whether to list them while another session works on the job.
    `list_side_files`: returns the further files of an item, beside its path. `remove_record`:
    removes the record that says that the item is complete. `is_renamed_first`: whether the item is
    renamed before its removal, so that an interrupted removal leaves an incomplete item."""

    list_existing: Callable[[CleanScope], Iterator[RemovableItem]]
    is_listed_if_busy: bool = True
    list_side_files: Callable[[str], List[str]] = lambda path: []
    remove_record: Callable[[str], None] = lambda path: None
    is_renamed_first: bool = True


KINDS: Dict[str, ItemKind] = {
    "run": ItemKind(list_runs),
    "release": ItemKind(
        _list_removable_releases,
        False,
        lambda path: [release_store.manifest_path(path)],
        release_store.remove_manifest,
    ),
    "half": ItemKind(_list_incomplete, False),
    # A secret file lies among the program's files in cwd/. If it were renamed first and its removal
    # were then interrupted, no later `clean` would find the renamed file. So it is not renamed.
    "secret file": ItemKind(_list_secret_copies, is_renamed_first=False),
    "data": ItemKind(
        _list_unkept_data_sets, True, _files_beside_data_set, data_versions.remove_record
    ),
    "environment": ItemKind(
        _list_removable_environments,
        True,
        lambda path: [environments.record_path(path), path + ".used"],
    ),
}
OF_JOB = ("run", "release", "half", "secret file", "data")
OUTSIDE_JOBS = ("environment", "half")


def list_items(scope: CleanScope) -> Iterator[RemovableItem]:
    busy = scope.busy_reason()
    for kind in OF_JOB if scope.job else OUTSIDE_JOBS:
        if KINDS[kind].is_listed_if_busy or not busy:
            yield from KINDS[kind].list_existing(scope)


def find_item(scope: CleanScope, kind: str, name: str) -> Optional[RemovableItem]:
    """Return the item as it is now, or None if it is gone or must not be removed."""
    candidates = (
        KINDS[kind].list_existing(scope) if kind in (OF_JOB if scope.job else OUTSIDE_JOBS) else ()
    )
    return next((item for item in candidates if (item.kind, item.name) == (kind, name)), None)


def existing_paths(item: RemovableItem) -> List[str]:
    """Return those of the item's paths that exist."""
    side_files = KINDS[item.kind].list_side_files(item.path) if item.kind in KINDS else []
    return [path for path in [item.path, *side_files] if os.path.lexists(path)]


def with_size_or_kept(item: RemovableItem) -> RemovableItem:
    """Return the item with its size. If some of its files belong to another user, or are on another
    file system, the item is marked as kept."""
    if item.kept_because:
        return item
    try:
        return item._replace(
            size=sum(removal.bytes_freed_by_removal(path) for path in existing_paths(item))
        )
    except OSError as error:
        return mark_kept(item, error)


def mark_kept(item: RemovableItem, error: OSError) -> RemovableItem:
    where = " (%s)" % error.filename if error.filename else ""
    return item._replace(kept_because="%s%s" % (error.strerror or error, where))


# --- everything


def list_everything(workdir: str, jobs: List[CleanScope]) -> Iterator[RemovableItem]:
    """Yield all items that `clean.everything` would remove, and also the live runs. If there is a
    live run, `clean.everything` removes nothing."""
    for scope in jobs:
        for item in list_runs(scope):
            yield item if item.is_live else item._replace(kept_because="", ended=None)
    yield from list_all_but_runs(workdir)


def list_all_but_runs(workdir: str) -> Iterator[RemovableItem]:
    """Yield what `clean.everything` would remove, except runs."""
    items = [
        RemovableItem(name, job, name, os.path.join(workdir, job, name))
        for job in list_jobs(workdir)
        for name in _JOB_FOLDERS
    ]
    kinds = {name: "half" for name in list_names(workdir) if name.startswith(removal.GONE)}
    kinds.update(_WORKDIR_FOLDERS)
    items += [
        RemovableItem(kind, "", name, os.path.join(workdir, name)) for name, kind in kinds.items()
    ]
    return (item for item in items if removal.is_own_or_root(item.path))


def list_run_folders(workdir: str, job: str) -> Iterator[RemovableItem]:
    """Yield the folders of runs, and what interrupted operations left beside them. If a run's
    folder has files that tfdeploy did not make, yield tfdeploy's own entries in that folder
    instead."""
    folder = layout.runs_dir(workdir, job)
    for name in list_names(folder):
        path, is_partial = os.path.join(folder, name), over.is_incomplete_name(name)
        if not removal.is_own_or_root(path) or not (is_safe_name(name) or is_partial):
            continue
        foreign = [] if is_partial else over.find_unknown_paths(path)
        if not foreign:
            yield RemovableItem("run", job, name, path)
            continue
        for entry in list_names(path):
            if os.path.join(path, entry) not in foreign:
                yield RemovableItem("run", job, "%s/%s" % (name, entry), os.path.join(path, entry))


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
