"""`clean.list`, `clean.remove`, `clean.workdir`, `clean.everything`: what no run needs any more,
with its size, and its removal.

Whether an item may go is decided again as it is removed (clean_kinds.py). A run goes under the lock
of the job's folders, all else of a job only while no other session works on the job.

`clean.everything` refuses while a run is alive or a session works on a job. All is moved to one
hidden folder before anything is removed. The locks go last, when they are released; the agent goes
while this process runs from it, so all modules that it needs are loaded.
"""

from __future__ import annotations

import os
import shutil  # noqa: F401 - removal.py needs it when the agent's folder, and what it could import from there, is gone

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Iterator, List, Optional, Tuple
from tfdeploy.agent.errors import NAME, VerbError
from tfdeploy.agent.host import removal
from tfdeploy.agent.ownership import check, name_of
from tfdeploy.agent.run import leftovers
from tfdeploy.agent.run.find import list_names
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.seen import AGENTS, stamps
from tfdeploy.agent.serve import audit_log
from tfdeploy.agent.serve.call import Call, audited, fenced
from tfdeploy.agent.serve.clean import kinds as clean_kinds
from tfdeploy.agent.serve.clean.kinds import Item, Scope
from tfdeploy.agent.serve.env import record as env_record
from tfdeploy.agent.serve.env import usage as env_usage
from tfdeploy.agent.serve.lock import fences as lock_fences
from tfdeploy.agent.serve.lock import verbs as lock
from tfdeploy.agent.serve.secret_files import SecretPaths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

GONE = "it is gone already"
NEEDED = "it is needed again"
REMAINS = "not all of it could be removed: %s"
NO_LOCK = "another host works on the job's folders"
LOCKS = ("locks", "fences")


def list_items(call: Call) -> Answer:
    """List what may go, and the runs and data sets that stay.

    Args: jobs? (of these alone), named? (data sets too, but for these, which stay), everything?
    (all that tfdeploy has put here instead), secret_files?: as of audit.
    """
    context, secret, jobs = call.context, SecretPaths(call), _names(call, "jobs")
    here = clean_kinds.jobs_here(context.workdir)
    wanted = [job for job in here if jobs is None or job in jobs]
    if call.flag("everything"):
        items = clean_kinds.everything(context.workdir, [Scope(context, job) for job in here])
    else:
        scopes = [
            Scope(context, job, named=_names(call, "named"), secret=secret.code(job))
            for job in wanted
        ]
        items = (
            item
            for scope in [*scopes, Scope(context, jobs=jobs)]
            for item in clean_kinds.list_items(scope)
        )
    _send_all(call, map(clean_kinds.measured, items))
    return {"workdir_id": _identity(context.agent_dir), "jobs": here}


@fenced
@audited("clean", "removed")
def remove(call: Call) -> Answer:
    """Remove things of a job, as clean.list names them. An item follows once a thing is gone, or
    says why it stays.

    Args: job, things [[kind, name], ...], named?: data sets that stay, secret_files?: as of audit.
    """
    job, secret = call.name("job"), SecretPaths(call)
    check(call.context.workdir, *layout.of_job(job))
    scope = Scope(call.context, job, named=_names(call, "named") or [], secret=secret.code(job))
    _send_all(call, (_remove(scope, kind, name) for kind, name in _wanted(call)))
    return {}


@audited("clean", "removed")
def remove_beside_jobs(call: Call) -> Answer:
    """Remove environments, and half-made things that belong to no job, as clean.remove does.

    Args: things [[kind, name], ...], jobs?: only environments that no other job has used.
    """
    scope = Scope(call.context, jobs=_names(call, "jobs"))
    _send_all(call, (_remove(scope, kind, name) for kind, name in _wanted(call)))
    return {}


def everything(call: Call) -> Answer:
    """Remove all that tfdeploy has put into this workdir, `keep` and the agent included.

    Args: holder.

    Raises VerbError live_run, locked: nothing was removed.
    """
    for item in _remove_everything(call):
        _send(call, item)
    return {}


# --- arguments and answers


def _send_all(call: Call, items: Iterator[Item]) -> None:
    """Stops before the next item once the call is cancelled."""
    while not call.cancelled.is_set():
        item = next(items, None)
        if item is None:
            return
        _send(call, item)


def _send(call: Call, item: Item) -> None:
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


def _identity(agent_dir: str) -> str:
    """Equal on hosts that share this workdir: the agent's files have one inode and one time of
    change there. "": not known."""
    try:
        return name_of(
            {"seen": stamps(agent_dir, (0, os.geteuid())).encode("utf-8", "surrogateescape")}
        )[:16]
    except OSError:
        return ""


def _names(call: Call, key: str) -> Optional[List[str]]:
    return None if call.args.get(key) is None else [_name(name) for name in call.rows(key)]


def _name(value: object) -> str:
    if not isinstance(value, str) or not NAME.match(value):
        raise VerbError("bad_name", "%.200r is not a name that tfdeploy uses" % (value,))
    return value


def _wanted(call: Call) -> List[Tuple[str, str]]:
    for row in call.rows("things"):
        if (
            not isinstance(row, (list, tuple))
            or len(row) != 2
            or not all(isinstance(word, str) for word in row)
        ):
            raise VerbError("bad_argument", "%.200r is not [kind, name]" % (row,))
    return [(kind, name) for kind, name in call.rows("things")]


# --- the removal of an item


def _remove(scope: Scope, kind: str, name: str) -> Item:
    """`kept_because`: why it was not removed, or not whole."""
    asked = Item(kind, scope.job, name)
    try:
        if scope.job and (kind == "run" or _is_run_folder(kind, name)):
            return _remove_run(scope, kind, name)
        busy = clean_kinds.is_busy(scope.workdir, scope.job, scope.own_lock) if scope.job else ""
        item = None if busy else clean_kinds.find(scope, kind, name)
        if item is None:
            return asked._replace(kept_because=busy or GONE)
        if kind == "environment":
            return _remove_environment(scope, item)
        item = clean_kinds.measured(item)
        return item if item.kept_because else _remove_paths(item)
    except OSError as error:
        return clean_kinds.kept(asked, error)


def _remove_paths(item: Item) -> Item:
    kind = clean_kinds.KINDS[item.kind]
    kind.forget(item.path)
    if not kind.is_moved:
        return _deleted(item, [item.path])
    return _deleted(
        item, [removal.set_aside(path) for path in [item.path, *kind.beside(item.path)]]
    )


def _is_run_folder(kind: str, name: str) -> bool:
    """A partial item that is a run's whole folder, not one that lies in it or beside it."""
    words = name.split("/")
    return kind == "half" and words[0] == "runs" and len(words) == 2 and bool(NAME.match(words[1]))


def _remove_run(scope: Scope, kind: str, name: str) -> Item:
    run = name.rpartition("/")[2]
    paths = RunPaths(layout.host_dir(scope.workdir, scope.job, run, "x"))
    asked = Item(kind, scope.job, name, paths.run_dir)
    with leftovers.folders_lock(paths) as folders:  # no host begins a run of that name meanwhile
        if not folders.is_held():
            return asked._replace(kept_because=NO_LOCK)
        item = clean_kinds.find_run(scope, run)
        if item is None:
            return asked._replace(kept_because=GONE)
        if item.kind != kind or item.kept_because:
            return asked._replace(kept_because=item.kept_because or NEEDED, is_live=item.is_live)
        item = clean_kinds.measured(item)
        if item.kept_because:
            return item
        hosts = list_names(os.path.join(item.path, "hosts"))
        aside = removal.set_aside(item.path)
    for host in hosts:
        leftovers.forget_doubt(RunPaths(layout.host_dir(scope.workdir, scope.job, run, host)))
    return _deleted(item, [aside])


def _remove_environment(scope: Scope, item: Item) -> Item:
    """It is no environment any more once its record is set aside. Where a launch came first, the
    record goes back."""
    with env_usage.locked_if_free(scope.workdir, item.name) as is_free:
        if not is_free:
            return item._replace(kept_because="a setup makes it now")
        item = clean_kinds.measured(item)
        busy = _busy_jobs(scope.workdir)
        if item.kept_because or busy:
            return item._replace(kept_because=item.kept_because or busy)
        record = env_record.path_of(item.path)
        hidden = removal.set_aside(record)
        busy = _busy_jobs(scope.workdir) or (
            NEEDED if item.name in env_usage.in_use(scope.workdir) else ""
        )
        if busy:
            if hidden is not None:
                os.rename(hidden, record)
            return item._replace(size=0, kept_because=busy)
        aside = removal.set_aside(item.path)
        env_usage.discard(item.path)
    return _deleted(item, [aside, hidden])


def _busy_jobs(workdir: str) -> str:
    return next(
        filter(None, (clean_kinds.is_busy(workdir, job) for job in clean_kinds.jobs_here(workdir))),
        "",
    )


def _deleted(item: Item, aside: List[Optional[str]]) -> Item:
    """Removes what was set aside. None: another host of a shared workdir was first, and counts
    it."""
    present = [path for path in aside if path is not None]
    if not present:
        return item._replace(size=0, kept_because=GONE)
    remains = [path for path in present if not removal.remove(path)]
    return item._replace(kept_because=REMAINS % remains[0]) if remains else item


# --- everything


def _remove_everything(call: Call) -> Iterator[Item]:
    """Raises VerbError live_run, locked: nothing was removed."""
    context, workdir = call.context, call.context.workdir
    if not os.path.isdir(os.path.join(workdir, AGENTS)):
        return  # another host that shares the workdir has removed it all
    jobs = clean_kinds.jobs_here(workdir)
    held: List[str] = []
    try:
        for job in jobs:
            lock.take_at_once(
                context, job, lock_fences.holder_of({**call.table("holder"), "operation": "clean"})
            )
            held.append(job)
        _refuse([Scope(context, job) for job in jobs])
        audit_log.note(call, "clean", "removes everything")
        yield from _remove_all(workdir, jobs)
        for job in jobs:
            lock.let_go(context, job)
            _remove_locks(os.path.join(workdir, job))
        _remove_empty([workdir])
    finally:
        for job in held:
            lock.let_go(context, job)


def _refuse(scopes: List[Scope]) -> None:
    for scope in scopes:
        for item in clean_kinds.runs(scope):
            if item.is_live:
                what = "run %s of job %s: %s" % (item.name, item.job, item.kept_because)
                raise VerbError("live_run", what, advice="stop_run", details={"run": item.name})
        busy = clean_kinds.is_busy(scope.workdir, scope.job, scope.own_lock)
        if busy:
            raise VerbError("locked", busy, advice="wait")


def _remove_all(workdir: str, jobs: List[str]) -> Iterator[Item]:
    hidden = os.path.join(workdir, "%s%s" % (removal.GONE, os.urandom(6).hex()))
    os.mkdir(hidden, 0o700)
    of_runs = [item for job in jobs for item in clean_kinds.all_of_runs(workdir, job)]
    moved = []
    for item in map(clean_kinds.measured, of_runs + list(clean_kinds.all_but_runs(workdir))):
        if item.kept_because:
            yield item
        elif item.path != hidden:
            moved.append((item, removal.set_aside(item.path, hidden)))
    for job in jobs:
        runs = layout.runs_dir(workdir, job)
        _remove_empty([os.path.join(runs, name) for name in list_names(runs)] + [runs])
    for item, aside in moved:
        if aside is not None:
            yield _deleted(item, [aside])
    _remove_empty([hidden])


def _remove_locks(job_dir: str) -> None:
    """Those that no session holds, and then the job's folder, if it is empty."""
    locks, fences = (os.path.join(job_dir, name) for name in LOCKS)
    for name in list_names(locks):
        lock.remove_if_free(os.path.join(locks, name))
    if not list_names(locks):
        for name in list_names(fences):
            removal.remove(os.path.join(fences, name))
    _remove_empty([locks, fences, job_dir])


def _remove_empty(folders: List[str]) -> None:
    for folder in folders:
        try:
            os.rmdir(folder)
        except OSError:
            pass  # something foreign is in it


VERBS = {
    "clean.list": list_items,
    "clean.remove": remove,
    "clean.workdir": remove_beside_jobs,
    "clean.everything": everything,
}
