"""`clean.list`, `clean.remove`, `clean.workdir`, `clean.everything`: what no run needs any more, with its size, and its removal.

What may go is decided again for each thing when it is removed: see clean_remove.py.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Iterator, List, Optional, Tuple
from tfdeploy.agent.errors import NAME, VerbError
from tfdeploy.agent.ownership import check, name_of
from tfdeploy.agent.run import over
from tfdeploy.agent.seen import stamps
from tfdeploy.agent.serve import clean_everything, clean_remove, clean_rules
from tfdeploy.agent.serve.call import Call, audited, fenced
from tfdeploy.agent.serve.clean_rules import Thing
from tfdeploy.agent.serve.secret_files import SecretPaths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer


def list_things(call: Call) -> Answer:
    """List what may go, and the runs and data sets that stay.

    Args: jobs? (of these alone), named? (data sets too, but for these, which stay), everything?
    (all that tfdeploy has put here instead), secret_files?: as of audit.
    """
    workdir, secret = call.context.workdir, SecretPaths(call)
    here = clean_rules.jobs_here(workdir)
    jobs = None if call.args.get("jobs") is None else [_name(job) for job in call.rows("jobs")]
    if call.flag("everything"):
        found = clean_everything.things(workdir, here, call.context.host)
    else:
        found = _things(call, [job for job in here if jobs is None or job in jobs], jobs, secret)
    for thing in found:
        if call.cancelled.is_set():
            break
        _tell(call, thing if thing.stays else clean_remove.measured(thing))
    return {"workdir_id": _identity(call.context.agent_dir), "jobs": here}


def _things(call: Call, wanted: List[str], jobs: Optional[List[str]], secret: SecretPaths) -> Iterator[Thing]:
    workdir = call.context.workdir
    for job in wanted:
        ended = []
        for thing in clean_rules.runs(workdir, job, call.context.host):
            if thing.kind == "run" and not thing.stays:
                ended.append(thing.name)
            yield thing
        if not clean_rules.is_busy(workdir, job):
            yield from clean_rules.releases(workdir, job, secret.code(job))
            yield from clean_rules.halves(workdir, job, ended)
        if secret.code(job):
            marked = over.marked_runs(workdir, job)
            yield from clean_rules.secret_copies(workdir, job, secret.code(job), call.context.host, marked)
        if call.args.get("named") is not None:
            yield from clean_rules.data_sets(workdir, job, _named(call))
    yield from clean_rules.environments(workdir, jobs)
    yield from clean_rules.workdir_halves(workdir)


@fenced
@audited("clean", "removed")
def remove(call: Call) -> Answer:
    """Remove things of a job, as clean.list names them. An item follows once a thing is gone, or
    says why it stays.

    Args: job, things [[kind, name], ...], named?: data sets that stay, secret_files?: as of audit.
    """
    workdir, job, secret = call.context.workdir, call.name("job"), SecretPaths(call)
    check(workdir, *layout.of_job(job))
    wanted = [_wanted(row) for row in call.rows("things")]
    removal = clean_remove.OfJob(call.context, job, over.marked_runs(workdir, job), _named(call), secret.code(job))
    for kind, name in wanted:
        if call.cancelled.is_set():
            break
        _tell(call, removal.remove(kind, name))
    return {}


@audited("clean", "removed")
def remove_beside_jobs(call: Call) -> Answer:
    """Remove environments, and half-made things that belong to no job, as clean.remove does.

    Args: things [[kind, name], ...], jobs?: only environments that no other job has used.
    """
    jobs = None if call.args.get("jobs") is None else [_name(job) for job in call.rows("jobs")]
    for kind, name in [_wanted(row) for row in call.rows("things")]:
        if call.cancelled.is_set():
            break
        _tell(call, clean_remove.beside_jobs(call.context.workdir, kind, name, jobs))
    return {}


def everything(call: Call) -> Answer:
    """Remove all that tfdeploy has put into this workdir, `keep` and the agent included.

    Args: holder.

    Raises VerbError live_run, locked: nothing was removed.
    """
    for thing in clean_everything.remove(call):
        _tell(call, thing)
    return {}


def _tell(call: Call, thing: Thing) -> None:
    fields = thing._asdict()
    del fields["path"]
    fields["bytes"] = fields.pop("size")
    call.item(fields, b"")


def _identity(agent_dir: str) -> str:
    """Equal on hosts that share this workdir: the agent's files have one inode and one time of change there. "": not known."""
    try:
        return name_of({"seen": stamps(agent_dir, (0, os.geteuid())).encode("utf-8", "surrogateescape")})[:16]
    except OSError:
        return ""


def _named(call: Call) -> List[str]:
    return [_name(name) for name in call.rows("named")]


def _wanted(row: object) -> Tuple[str, str]:
    if not isinstance(row, (list, tuple)) or len(row) != 2 or not all(isinstance(word, str) for word in row):
        raise VerbError("bad_argument", "%.200r is not [kind, name]" % (row,))
    return row[0], row[1]


def _name(value: object) -> str:
    if not isinstance(value, str) or not NAME.match(value):
        raise VerbError("bad_name", "%.200r is not a name that tfdeploy uses" % (value,))
    return value


VERBS = {
    "clean.list": list_things,
    "clean.remove": remove,
    "clean.workdir": remove_beside_jobs,
    "clean.everything": everything,
}
