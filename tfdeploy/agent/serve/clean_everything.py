"""All that tfdeploy has put into a workdir: listed, and removed with `keep` and the agent. What is foreign stays.

It refuses while a run is alive or a session works on a job. All is moved to one hidden folder before anything is removed. The
locks go last, when they are released; the agent goes while this process runs from it, so all modules that it needs are loaded.
"""

from __future__ import annotations

import os
import shutil  # noqa: F401 - removal.py needs it when the agent's folder, and what it could import from there, is gone
import stat

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Iterator, List
from tfdeploy.agent.errors import NAME, VerbError
from tfdeploy.agent.host import removal
from tfdeploy.agent.run import over
from tfdeploy.agent.run.find import list_names
from tfdeploy.agent.seen import AGENTS
from tfdeploy.agent.serve import audit_log, clean_rules, lock, lock_fences
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.clean_rules import Thing

OF_JOB = {"releases": "releases", "data": "data", "keep": "keep"}
LOCKS = ("locks", "fences")
_TOP = {".envs": "environments", layout.IN_DOUBT: "rest", layout.AUDIT: "audit log", AGENTS: "agent"}  # the agent last


def things(workdir: str, jobs: List[str], told: str) -> Iterator[Thing]:
    """What would be removed. A run that is alive stays, and all with it."""
    for job in jobs:
        for thing in clean_rules.runs(workdir, job, told):
            yield thing if thing.live else thing._replace(stays="", ended=None)
    yield from _not_runs(workdir)


def _not_runs(workdir: str) -> Iterator[Thing]:
    for job in clean_rules.jobs_here(workdir):
        for name, kind in OF_JOB.items():
            path = os.path.join(workdir, job, name)
            if _is_ours(path):
                yield Thing(kind, job, name, path)
    for name in list_names(workdir):
        if name.startswith(removal.GONE) and _is_ours(os.path.join(workdir, name)):
            yield Thing("half", "", name, os.path.join(workdir, name))
    for name, kind in _TOP.items():
        if _is_ours(os.path.join(workdir, name)):
            yield Thing(kind, "", name, os.path.join(workdir, name))


def remove(call: Call) -> Iterator[Thing]:
    """Raises VerbError live_run, locked: nothing was removed."""
    context = call.context
    workdir = context.workdir
    if not os.path.isdir(os.path.join(workdir, AGENTS)):
        return  # another host that shares the workdir has removed it all
    jobs = clean_rules.jobs_here(workdir)
    held: List[str] = []
    try:
        for job in jobs:
            lock.take_at_once(context, job, lock_fences.holder_of({**call.table("holder"), "operation": "clean"}))
            held.append(job)
        _refuse(call, jobs)
        audit_log.note(call, "clean", "removes everything")
        yield from _remove(workdir, jobs)
        for job in jobs:
            lock.let_go(context, job)
            _remove_locks(os.path.join(workdir, job))
        _remove_empty([workdir])
    finally:
        for job in held:
            lock.let_go(context, job)


def _refuse(call: Call, jobs: List[str]) -> None:
    workdir = call.context.workdir
    for job in jobs:
        for thing in clean_rules.runs(workdir, job, call.context.host):
            if thing.live:
                what = "run %s of job %s: %s" % (thing.name, job, thing.stays)
                raise VerbError("live_run", what, advice="stop_run", details={"run": thing.name})
        busy = clean_rules.is_busy(workdir, job, lock.own_path(call.context, job))
        if busy:
            raise VerbError("locked", busy, advice="wait")


def _remove(workdir: str, jobs: List[str]) -> Iterator[Thing]:
    hidden = os.path.join(workdir, "%s%s" % (removal.GONE, os.urandom(6).hex()))
    os.mkdir(hidden, 0o700)
    pieces = [piece for job in jobs for piece in _of_runs(workdir, job)]
    moved = []
    for thing in pieces + list(_not_runs(workdir)):
        if thing.path == hidden:
            continue
        thing = _measured(thing)
        if not thing.stays:
            aside = removal.set_aside(thing.path, hidden)
            moved.append((thing, aside))
        else:
            yield thing
    for job in jobs:
        runs = layout.runs_dir(workdir, job)
        _remove_empty([os.path.join(runs, name) for name in list_names(runs)] + [runs])
    for thing, aside in moved:
        if aside is not None:
            yield thing if removal.remove(aside) else thing._replace(stays="not all of it could be removed: %s" % aside)
    _remove_empty([hidden])


def _of_runs(workdir: str, job: str) -> Iterator[Thing]:
    """Whole runs; of one with foreign files, what is tfdeploy's; and halves."""
    folder = layout.runs_dir(workdir, job)
    for name in list_names(folder):
        path = os.path.join(folder, name)
        if not _is_ours(path) or not (NAME.match(name) or over.is_half(name)):
            continue
        if not over.strange(path) or over.is_half(name):
            yield Thing("run", job, name, path)
            continue
        for inner in list_names(path):
            if os.path.join(path, inner) not in over.strange(path):
                yield Thing("run", job, "%s/%s" % (name, inner), os.path.join(path, inner))


def _measured(thing: Thing) -> Thing:
    try:
        return thing._replace(size=removal.usage(thing.path))
    except OSError as error:
        return thing._replace(stays="%s (%s)" % (error.strerror, error.filename))


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


def _is_ours(path: str) -> bool:
    """This user's or root's folder or file, and no link."""
    try:
        about = os.lstat(path)
    except OSError:
        return False
    return about.st_uid in (0, os.geteuid()) and not stat.S_ISLNK(about.st_mode)
