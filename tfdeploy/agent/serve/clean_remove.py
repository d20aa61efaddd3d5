"""Removes what no run needs any more, one thing at a time. Whether it may go is decided here, for each thing as it is removed.

A run goes under the lock of the job's folders, all else of a job only while no other session works on the job. Each thing is
renamed to a hidden name first: whoever is killed then leaves a half, which the next clean finds.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Collection, List, Optional, Set
from tfdeploy.agent.errors import NAME
from tfdeploy.agent.host import removal
from tfdeploy.agent.run import leftovers
from tfdeploy.agent.run.find import list_names
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve import clean_rules, data_record, env_record, env_usage, lock, release_manifest
from tfdeploy.agent.serve.call import Context
from tfdeploy.agent.serve.clean_rules import Thing

GONE = "it is gone already"
NEEDED = "it is needed again"
REMAINS = "not all of it could be removed: %s"
NO_LOCK = "another host works on the job's folders"


def measured(thing: Thing) -> Thing:
    """With its size. What holds another user's file, or another file system, stays."""
    try:
        return thing._replace(size=sum(removal.usage(path) for path in _paths(thing) if os.path.lexists(path)))
    except OSError as error:
        return _kept(thing, error)


def _paths(thing: Thing) -> List[str]:
    if thing.kind == "data":
        return [thing.path, *clean_rules.beside_data(thing.path)]
    if thing.kind == "release":
        return [thing.path, release_manifest.path_of(thing.path)]
    if thing.kind == "environment":
        return [thing.path, env_record.path_of(thing.path), thing.path + ".used"]
    return [thing.path]


def _kept(thing: Thing, error: OSError) -> Thing:
    where = " (%s)" % error.filename if error.filename else ""
    return thing._replace(stays="%s%s" % (error.strerror or error, where))


class OfJob:
    """`marked`: of over.marked_runs. `named`: the data sets that stay. `secret`: paths of secret files in the code."""

    def __init__(self, context: Context, job: str, marked: Set[str], named: Collection[str], secret: List[str]) -> None:
        self._workdir, self._told, self._job = context.workdir, context.host, job
        self._own_lock = lock.own_path(context, job)
        self._marked, self._named, self._secret = marked, named, secret

    def remove(self, kind: str, name: str) -> Thing:
        """`stays`: why it was not removed, or not whole."""
        try:
            if kind == "run" or _is_run_folder(kind, name):
                return self._run(kind, name)
            thing = self._find(kind, name)
            if thing is None or thing.stays:
                return thing or Thing(kind, self._job, name, "", stays=GONE)
            return self._other(thing)
        except OSError as error:
            return _kept(Thing(kind, self._job, name, ""), error)

    # --- a run

    def _run(self, kind: str, name: str) -> Thing:
        run = name.rpartition("/")[2]
        paths = RunPaths(layout.host_dir(self._workdir, self._job, run, "x"))
        asked = Thing(kind, self._job, name, paths.run_dir)
        with leftovers.folders_lock(paths) as folders:  # no host begins a run of that name meanwhile
            if not folders.is_held():
                return asked._replace(stays=NO_LOCK)
            thing = clean_rules.run_of(self._workdir, self._job, run, self._told, self._marked)
            if thing is None or thing.kind != kind or thing.stays:
                return asked._replace(stays=GONE if thing is None else thing.stays or NEEDED, live=bool(thing and thing.live))
            thing = measured(thing)
            if thing.stays:
                return thing
            hosts = list_names(os.path.join(thing.path, "hosts"))
            aside = removal.set_aside(thing.path)
        for host in hosts:
            leftovers.forget_doubt(RunPaths(layout.host_dir(self._workdir, self._job, run, host)))
        return _gone(thing, [aside])

    # --- a release, a data set, a half

    def _find(self, kind: str, name: str) -> Optional[Thing]:
        """As it is now; None: it is not there, or may not go."""
        busy = clean_rules.is_busy(self._workdir, self._job, self._own_lock)
        if busy:
            return Thing(kind, self._job, name, "", stays=busy)
        if kind == "release":
            found = clean_rules.releases(self._workdir, self._job, self._secret)
        elif kind == "secret file":
            found = clean_rules.secret_copies(self._workdir, self._job, self._secret, self._told, self._marked)
        elif kind == "data":
            found = clean_rules.data_sets(self._workdir, self._job, self._named)
        elif kind == "half":
            found = clean_rules.halves(self._workdir, self._job, self._ended_above(name))
        else:
            return None
        return next((thing for thing in found if thing.name == name), None)

    def _ended_above(self, name: str) -> List[str]:
        """The run in whose folder the half of that name lies, if it has ended."""
        words = name.split("/")
        if len(words) != 3:
            return []
        run = clean_rules.run_of(self._workdir, self._job, words[1], self._told, self._marked)
        return [] if run is None or run.stays or run.kind != "run" else [run.name]

    def _other(self, thing: Thing) -> Thing:
        thing = measured(thing)
        if thing.stays:
            return thing
        if thing.kind == "release":
            release_manifest.forget(thing.path)  # first: from now on it is no release
        elif thing.kind == "data":
            data_record.forget(thing.path)
        elif thing.kind == "secret file":
            return _gone(thing, [thing.path])  # a half in the folder of a program would be found by nobody
        more = clean_rules.beside_data(thing.path) if thing.kind == "data" else []
        return _gone(thing, [removal.set_aside(path) for path in [thing.path, *more]])


def _is_run_folder(kind: str, name: str) -> bool:
    """A half that is a run's whole folder, not one that lies in it or beside it."""
    words = name.split("/")
    return kind == "half" and words[0] == "runs" and len(words) == 2 and bool(NAME.match(words[1]))


# --- beside the jobs


def beside_jobs(workdir: str, kind: str, name: str, jobs: Optional[Collection[str]]) -> Thing:
    """An environment, or a half."""
    try:
        if kind == "environment":
            return _environment(workdir, name, jobs)
        found = (thing for thing in clean_rules.workdir_halves(workdir) if (kind, name) == ("half", thing.name))
        thing = next(found, None)
        if thing is None:
            return Thing(kind, "", name, "", stays=GONE)
        thing = measured(thing)
        return thing if thing.stays else _gone(thing, [thing.path])
    except OSError as error:
        return _kept(Thing(kind, "", name, ""), error)


def _environment(workdir: str, name: str, jobs: Optional[Collection[str]]) -> Thing:
    """It is no environment any more once its record is set aside. Where a launch came first, the record goes back."""
    found = next((thing for thing in clean_rules.environments(workdir, jobs) if thing.name == name), None)
    if found is None:
        return Thing("environment", "", name, "", stays=GONE)
    with env_usage.locked_if_free(workdir, name) as is_free:
        thing = measured(found) if is_free else found._replace(stays="a setup makes it now")
        busy = _busy_jobs(workdir)
        if thing.stays or busy:
            return thing._replace(stays=thing.stays or busy)
        record = env_record.path_of(thing.path)
        hidden = removal.set_aside(record)
        busy = _busy_jobs(workdir) or (NEEDED if name in env_usage.in_use(workdir) else "")
        if busy:
            if hidden is not None:
                os.rename(hidden, record)
            return thing._replace(size=0, stays=busy)
        aside = removal.set_aside(thing.path)
        env_usage.discard(thing.path)
    return _gone(thing, [aside, hidden])


def _busy_jobs(workdir: str) -> str:
    return next(filter(None, (clean_rules.is_busy(workdir, job) for job in clean_rules.jobs_here(workdir))), "")


def _gone(thing: Thing, aside: List[Optional[str]]) -> Thing:
    """Removes what was set aside. None: another host of a shared workdir was first, and counts it."""
    there = [path for path in aside if path is not None]
    if not there:
        return thing._replace(size=0, stays=GONE)
    remains = [path for path in there if not removal.remove(path)]
    return thing._replace(stays=REMAINS % remains[0]) if remains else thing
