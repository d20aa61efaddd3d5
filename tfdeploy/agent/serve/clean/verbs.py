"""Answers `clean.list`, `clean.remove`, `clean.workdir` and `clean.everything`: lists and removes
files and folders that no run needs any more.

Whether an item may be removed is decided again just before its removal (clean/kinds.py). A run is
removed under the lock of the job's folders. Other items of a job are removed only while no other
session works on the job.

`clean.everything` refuses while a run is alive or a session works on a job. It first moves
everything to one hidden folder. It removes the lock files at the end, because it holds the locks
until then. The agent's folder is removed while this process runs from it, so all modules that this
process will still need are imported first.
"""

from __future__ import annotations

import itertools
import os
import shutil  # noqa: F401 - imported early: removal.py uses it after the agent's folder is gone

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Iterator, List, Optional
from tfdeploy.agent.call import Call, audited, checked_name, requires_job_lock
from tfdeploy.agent.errors import VerbError, is_safe_name
from tfdeploy.agent.host import removal
from tfdeploy.agent.host.atomic import list_names
from tfdeploy.agent.ownership import agent_name, check_owners
from tfdeploy.agent.run import leftovers
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.secret_files import SecretPaths
from tfdeploy.agent.seen import AGENTS, read_file_stamps
from tfdeploy.agent.serve import audit_log, lock
from tfdeploy.agent.serve.clean import kinds as clean_kinds
from tfdeploy.agent.serve.clean.kinds import CleanScope, RemovableItem
from tfdeploy.agent.serve.env import environments

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

GONE = "it is gone already"
NEEDED = "it is needed again"
REMAINS = "the removal is not complete: %s is left"
NO_LOCK = "another process is changing the job's folders"
LOCKS = ("locks", "fences")


def list_items(call: Call) -> Answer:
    """List what may be removed, and the runs and data sets that are kept.

    Args: jobs? [names] (list only what belongs to these jobs), named? [names of data sets to keep]
    (list the other data sets too), everything? (instead, list everything that tfdeploy has put into
    the workdir), secret_files? (as for `audit`).
    """
    context, secret, jobs = call.context, SecretPaths(call), _optional_names(call, "jobs")
    all_jobs = clean_kinds.list_jobs(context.workdir)
    if call.flag("everything"):
        items = clean_kinds.list_everything(
            context.workdir, [CleanScope(context, job) for job in all_jobs]
        )
    else:
        kept_data_sets = _optional_names(call, "named")
        scopes = [
            CleanScope(context, job, kept_data_sets=kept_data_sets, secret_paths=secret.code[job])
            for job in all_jobs
            if jobs is None or job in jobs
        ]
        scopes.append(CleanScope(context, jobs=jobs))
        items = itertools.chain.from_iterable(map(clean_kinds.list_items, scopes))
    _send_items(call, map(clean_kinds.with_size_or_kept, items))
    return {"workdir_id": _shared_workdir_id(context.agent_dir), "jobs": all_jobs}


@requires_job_lock
@audited("clean", "removed")
def remove_items(call: Call) -> Answer:
    """Remove items of a job. The answer says of each item that it was removed, or why it is kept.

    Args: job, things [[kind, name], ...] (as in the answer of clean.list), named? [names of data
    sets to keep], secret_files? (as for `audit`).
    """
    job, secret = call.job, SecretPaths(call)
    check_owners(call.workdir, *layout.job_folders(job))
    scope = CleanScope(
        call.context,
        job,
        kept_data_sets=_optional_names(call, "named") or [],
        secret_paths=secret.code[job],
    )
    _send_items(call, (_remove_item(scope, *row) for row in call.rows("things", str, str)))
    return {}


@audited("clean", "removed")
def remove_items_outside_jobs(call: Call) -> Answer:
    """Remove environments, and what interrupted removals left outside the jobs. The answer is like
    the answer of clean.remove.

    Args: things [[kind, name], ...], jobs? [names] (keep an environment if any other job has used
    it).
    """
    scope = CleanScope(call.context, jobs=_optional_names(call, "jobs"))
    _send_items(call, (_remove_item(scope, *row) for row in call.rows("things", str, str)))
    return {}


def remove_everything(call: Call) -> Answer:
    """Remove all that tfdeploy has put into this workdir, including `keep` and the agent.

    Args: holder (as for `lock`).

    Raises VerbError live_run, locked (in both cases, nothing was removed).
    """
    for item in _remove_whole_workdir(call):
        _send_item(call, item)
    return {}


# --- arguments and answers


def _send_items(call: Call, items: Iterator[RemovableItem]) -> None:
    """Send each item. Stops before the next item once the call is cancelled."""
    for item in items:
        _send_item(call, item)
        if call.cancelled.is_set():
            return


def _send_item(call: Call, item: RemovableItem) -> None:
    call.item(
        {
            "kind": item.kind,
            "job": item.job,
            "name": item.name,
            "bytes": item.size,
            "ended": item.ended,
            "stays": item.kept_because,
            "live": item.is_live,
        },
        b"",
    )


def _shared_workdir_id(agent_dir: str) -> str:
    """Return a text that is equal on all hosts that share this workdir, or "" if it is not known.
    The text is computed from the inodes and change times of the agent's files, which all these
    hosts see."""
    try:
        return agent_name(
            {
                "seen": read_file_stamps(agent_dir, (0, os.geteuid())).encode(
                    "utf-8", "surrogateescape"
                )
            }
        )[:16]
    except OSError:
        return ""


def _optional_names(call: Call, key: str) -> Optional[List[str]]:
    return None if call.args.get(key) is None else [checked_name(name) for name in call.rows(key)]


# --- the removal of an item


def _remove_item(scope: CleanScope, kind: str, name: str) -> RemovableItem:
    """Remove the item. `kept_because` of the result says why the item was not removed, or not
    completely."""
    requested = RemovableItem(kind, scope.job, name)
    try:
        if scope.job and (kind == "run" or _is_whole_run_folder(kind, name)):
            return _remove_run(scope, kind, name)
        busy = scope.busy_reason()
        item = None if busy else clean_kinds.find_item(scope, kind, name)
        if item is None:
            return requested._replace(kept_because=busy or GONE)
        if kind == "environment":
            return _remove_environment(scope, item)
        item = clean_kinds.with_size_or_kept(item)
        return item if item.kept_because else _remove_paths(item)
    except OSError as error:
        return clean_kinds.mark_kept(requested, error)


def _remove_paths(item: RemovableItem) -> RemovableItem:
    kind = clean_kinds.KINDS[item.kind]
    kind.remove_record(item.path)
    if not kind.is_renamed_first:
        return _delete_paths(item, [item.path])
    return _delete_paths(
        item,
        [removal.rename_to_hidden(path) for path in [item.path, *kind.list_side_files(item.path)]],
    )


def _is_whole_run_folder(kind: str, name: str) -> bool:
    """Return whether an item with this kind and name is the whole folder of an incomplete run, and
    not only an entry in such a folder."""
    steps = name.split("/")
    return kind == "half" and steps[0] == "runs" and len(steps) == 2 and is_safe_name(steps[1])


def _remove_run(scope: CleanScope, kind: str, name: str) -> RemovableItem:
    run = name.rpartition("/")[2]
    paths = RunPaths(layout.host_dir(scope.workdir, scope.job, run, "x"))
    requested = RemovableItem(kind, scope.job, name, paths.run_dir)
    # While this lock is held, no host begins a run with this name.
    with leftovers.acquire_folders_lock(paths) as folders:
        if not folders.is_held():
            return requested._replace(kept_because=NO_LOCK)
        item = clean_kinds.find_run(scope, run)
        if item is None:
            return requested._replace(kept_because=GONE)
        if item.kind != kind or item.kept_because:
            return requested._replace(
                kept_because=item.kept_because or NEEDED, is_live=item.is_live
            )
        item = clean_kinds.with_size_or_kept(item)
        if item.kept_because:
            return item
        hosts = list_names(os.path.join(item.path, "hosts"))
        aside = removal.rename_to_hidden(item.path)
    for host in hosts:
        leftovers.remove_uncommitted_marks(
            RunPaths(layout.host_dir(scope.workdir, scope.job, run, host))
        )
    return _delete_paths(item, [aside])


def _remove_environment(scope: CleanScope, item: RemovableItem) -> RemovableItem:
    """Remove the environment. First hide its record, so that no further launch uses the
    environment. Then check that no launch uses it already; if one does, restore the record."""
    with environments.hold_lock_if_free(scope.workdir, item.name) as is_free:
        if not is_free:
            return item._replace(
                kept_because="another tfdeploy command is creating this environment now"
            )
        item = clean_kinds.with_size_or_kept(item)
        busy = _any_busy_reason(scope.workdir)
        if item.kept_because or busy:
            return item._replace(kept_because=item.kept_because or busy)
        record = environments.record_path(item.path)
        hidden_record = removal.rename_to_hidden(record)
        busy = _any_busy_reason(scope.workdir) or (
            NEEDED if item.name in environments.environments_in_use(scope.workdir) else ""
        )
        if busy:
            if hidden_record is not None:
                os.rename(hidden_record, record)
            return item._replace(size=0, kept_because=busy)
        aside = removal.rename_to_hidden(item.path)
        environments.remove_with_side_files(item.path)
    return _delete_paths(item, [aside, hidden_record])


def _any_busy_reason(workdir: str) -> str:
    return next(
        filter(
            None, (clean_kinds.busy_reason(workdir, job) for job in clean_kinds.list_jobs(workdir))
        ),
        "",
    )


def _delete_paths(item: RemovableItem, paths: List[Optional[str]]) -> RemovableItem:
    """Delete the item's files and folders. `paths`: where they are now, because the caller may have
    renamed them. A path is None if another host that shares the workdir has removed the file or
    folder first; that host reports the removal."""
    present = [path for path in paths if path is not None]
    if not present:
        return item._replace(size=0, kept_because=GONE)
    remaining = [path for path in present if not removal.remove(path)]
    return item._replace(kept_because=REMAINS % remaining[0]) if remaining else item


# --- everything


def _remove_whole_workdir(call: Call) -> Iterator[RemovableItem]:
    """Remove everything that tfdeploy has put into the workdir. If VerbError live_run or locked is
    raised, nothing was removed."""
    context, workdir = call.context, call.workdir
    if not os.path.isdir(os.path.join(workdir, AGENTS)):
        return  # another host that shares the workdir has removed it all
    jobs = clean_kinds.list_jobs(workdir)
    try:
        for job in jobs:
            holder = lock.parse_holder({**call.table("holder"), "operation": "clean"})
            lock.acquire_or_raise(context, job, holder)
        _refuse_if_in_use([CleanScope(context, job) for job in jobs])
        audit_log.record_action(call, "clean", "removes everything")
        yield from _remove_all_items(workdir, jobs)
        for job in jobs:
            lock.release_if_held(context, job)
            _remove_unheld_locks(os.path.join(workdir, job))
        _remove_empty_folders([workdir])
    finally:
        for job in jobs:
            lock.release_if_held(context, job)


def _refuse_if_in_use(scopes: List[CleanScope]) -> None:
    for scope in scopes:
        for item in clean_kinds.list_runs(scope):
            if item.is_live:
                what = "run %s of job %s: %s" % (item.name, item.job, item.kept_because)
                raise VerbError("live_run", what, advice="stop_run", details={"run": item.name})
        if busy := scope.busy_reason():
            raise VerbError("locked", busy, advice="wait")


def _remove_all_items(workdir: str, jobs: List[str]) -> Iterator[RemovableItem]:
    hidden_folder = os.path.join(workdir, "%s%s" % (removal.GONE, os.urandom(6).hex()))
    os.mkdir(hidden_folder, 0o700)
    of_runs = [item for job in jobs for item in clean_kinds.list_run_folders(workdir, job)]
    moved = []
    for item in map(
        clean_kinds.with_size_or_kept, of_runs + list(clean_kinds.list_all_but_runs(workdir))
    ):
        if item.kept_because:
            yield item
        elif item.path != hidden_folder:
            moved.append((item, removal.rename_to_hidden(item.path, hidden_folder)))
    for job in jobs:
        runs = layout.runs_dir(workdir, job)
        _remove_empty_folders([os.path.join(runs, name) for name in list_names(runs)] + [runs])
    for item, aside in moved:
        if aside is not None:
            yield _delete_paths(item, [aside])
    _remove_empty_folders([hidden_folder])


def _remove_unheld_locks(job_dir: str) -> None:
    """Remove the locks that no session holds, and then the job's folder if it is empty."""
    locks, fences = (os.path.join(job_dir, name) for name in LOCKS)
    for name in list_names(locks):
        lock.remove_unheld_lock(os.path.join(locks, name))
    if not list_names(locks):
        for name in list_names(fences):
            removal.remove(os.path.join(fences, name))
    _remove_empty_folders([locks, fences, job_dir])


def _remove_empty_folders(folders: List[str]) -> None:
    for folder in folders:
        try:
            os.rmdir(folder)
        except OSError:
            pass  # the folder has an entry that tfdeploy did not make


VERBS = {
    "clean.list": list_items,
    "clean.remove": remove_items,
    "clean.workdir": remove_items_outside_jobs,
    "clean.everything": remove_everything,
}
