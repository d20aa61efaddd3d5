"""Decides on which host training resumes, so that no training starts from zero unnoticed.

A `keep` folder contains files that later runs need, usually checkpoints. The task that writes
checkpoints is placed on the host with the newest `keep` folder. If that is not possible, the launch
is refused. Mode mirrored has another rule: the newest `keep` folder is copied to every host. The
decision uses what hosts report about their files. No checkpoint is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tfdeploy.agent import layout
from tfdeploy.errors import Refused
from tfdeploy.model.facts import FactsByHost, HostFacts, KeepFolderFact
from tfdeploy.model.inventory import HostsByName
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import Notes
from tfdeploy.planning import checks
from tfdeploy.planning.cluster.placement import Seat, Seats, checkpoint_writer_seat, place_tasks
from tfdeploy.planning.cluster.role_requests import RoleRequests
from tfdeploy.planning.options import Options
from tfdeploy.text.names import fold_names
from tfdeploy.text.nexts import command_on_host

# Two times that differ by less count as equal, because the clocks of hosts are not exact.
CLOCK_SLACK_S = 1.0


@dataclass(frozen=True)
class HostKeep:
    """One `keep` folder on one host, with files of earlier runs.

    `changed_at`: time of its last change in UTC seconds, by the control machine's clock.
    """

    host: str
    fact: KeepFolderFact
    changed_at: float

    @property
    def description(self) -> str:
        return f"{self.fact.path}: {self.fact.checkpoint or 'files of an earlier run'}"

    @property
    def unused_note(self) -> str:
        return f"--ignore-keep: the newest `keep` ({self.description}), on {self.host}, is not used"


@dataclass(frozen=True)
class ResumePoint:
    """The host on which training resumes.

    `host`: the host of the task that writes checkpoints. `copied_from`: the host whose `keep`
    folders are copied to all other hosts before the start; None if nothing is copied.
    """

    host: str
    copied_from: str | None = None
    notes: Notes = ()


def keep_folders_with_content(job: Job, facts: HostFacts) -> list[KeepFolderFact]:
    """Return the job's `keep` folders on one host that have content."""
    return [fact for fact in facts.keep if fact.path in job.keep and fact.newest > 0]


def newest_keep_folder(
    job: Job, facts: FactsByHost, role_hosts: tuple[str, ...], preferred_host: str
) -> HostKeep | None:
    """Return the newest `keep` folder of all hosts; None if no host has one.

    `role_hosts`: the hosts of the role that writes checkpoints. `preferred_host`: if the folder on
    this host has the same content as the newest folder (a shared disk, or a copy), it is returned
    instead.

    If any folder contains a checkpoint, only folders with checkpoints are compared. Otherwise
    folders on `role_hosts` are preferred, and some folders are ignored: those on a host that, in
    its newest run, had no task that writes checkpoints. Other tasks wrote the files there. If this
    rule would ignore every folder, it does not apply.

    A folder that has not changed since the last successful run counts only on the host that wrote
    the checkpoints of that run. On any other host, it is an old copy of files that the program has
    since replaced or deleted.
    """
    kept_everywhere = _keep_folders_of_all_hosts(job, facts)
    last_writer, ended_at = host_and_time_of_last_success(facts)
    preferred = [kept for kept in kept_everywhere if kept.host == preferred_host]
    kept_everywhere = [
        kept
        for kept in kept_everywhere
        if kept.host == last_writer or kept.changed_at > ended_at + CLOCK_SLACK_S
    ]
    own = [
        kept for kept in kept_everywhere if facts[kept.host].wrote_last is not False
    ] or kept_everywhere
    checkpoints = [kept for kept in kept_everywhere if kept.fact.checkpoint]
    at_home = [kept for kept in own if kept.host in role_hosts]
    candidates = checkpoints or at_home or own
    latest = max((kept.changed_at for kept in candidates), default=0.0)
    # If the times of folders differ by less than CLOCK_SLACK_S, the folder of the first host by
    # name is chosen, so that every launch makes the same choice.
    best = next((kept for kept in candidates if kept.changed_at >= latest - CLOCK_SLACK_S), None)
    return next((kept for kept in preferred if best and kept.fact.may_be_copy_of(best.fact)), best)


def _keep_folders_of_all_hosts(job: Job, facts: FactsByHost) -> list[HostKeep]:
    return [
        HostKeep(name, fact, fact.compared_time - facts[name].clock_skew_s)
        for name in sorted(facts)
        for fact in keep_folders_with_content(job, facts[name])
    ]


def host_and_time_of_last_success(facts: FactsByHost) -> tuple[str | None, float]:
    """Return the host on which the task that writes checkpoints last succeeded, and when.

    The time is UTC seconds by the control machine's clock. If there is no such host, return (None,
    -inf).
    """
    times = {
        name: fact.succeeded - fact.clock_skew_s
        for name, fact in facts.items()
        if fact.succeeded is not None
    }
    return max(times.items(), key=lambda item: item[1], default=(None, -math.inf))


def seat_tasks_and_find_resume_point(
    requested: RoleRequests,
    hosts: HostsByName,
    facts: FactsByHost,
    job: Job,
    options: Options,
) -> tuple[Seats, ResumePoint]:
    """Return all tasks with their hosts, and the host on which training resumes.

    The task that writes checkpoints is placed on the host with the newest `keep` folder. Raises
    Refused if that host cannot run this task. In a mode in which every worker reads the
    checkpoints, that folder is copied to all hosts instead. Also raises what `place_tasks` and
    `checks.check_seats` raise.
    """
    seats = place_tasks(requested, hosts, facts, {})
    checks.check_seats(job, options, seats)
    default = checkpoint_writer_seat(seats)
    role_hosts = requested[default.role].hosts
    if rules_of(job.mode).all_decide:
        return seats, _resume_from_copy(job, facts, seats, default, options)
    kept = newest_keep_folder(job, facts, role_hosts, default.host)
    if kept is None or kept.host == default.host:
        return seats, ResumePoint(default.host)
    if options.ignore_keep:
        return seats, ResumePoint(default.host, notes=(kept.unused_note,))
    if kept.host in role_hosts:
        # In modes coordinator and ingraph, the server of worker 0 may have written the `keep`
        # folder. So worker 0 is placed on the host with this folder, too.
        with_it = ("worker",) if default.role == rules_of(job.mode).lead_role else ()
        first = dict.fromkeys((default.role, *with_it), kept.host)
        seats = place_tasks(requested, hosts, facts, first)
    returned = checkpoint_writer_seat(seats)
    if returned.host != kept.host:
        raise _keep_host_error(kept, default, role_hosts)
    why = f"on {kept.host}, because this host has the newest `keep` ({kept.description})"
    seats = tuple(
        replace(seat, why=f"{why}; {seat.why}") if seat is returned else seat for seat in seats
    )
    note = f"{default.task} is {why}; without this folder, it would be on {default.host}"
    return seats, ResumePoint(returned.host, notes=(note,))


def _resume_from_copy(
    job: Job, facts: FactsByHost, seats: Seats, chief: Seat, options: Options
) -> ResumePoint:
    """Return where training resumes in a mode in which every worker reads the checkpoints.

    All hosts get a copy of one `keep` folder: the one with the newest checkpoint, or if there is no
    checkpoint, the one on the chief's host. If the last run succeeded and kept nothing, training
    starts from zero, and the older checkpoints on other hosts are renamed.
    """
    kept = newest_keep_folder(job, facts, (chief.host,), chief.host)
    others = [seat.host for seat in seats if kept and seat.host != kept.host]
    if kept and kept.host != chief.host and options.ignore_keep:
        # All hosts get the chief's `keep` folder, so that all workers start from the same state.
        return ResumePoint(chief.host, chief.host, (kept.unused_note,))
    last_writer, _ = host_and_time_of_last_success(facts)
    if not kept and last_writer and _keep_folders_of_all_hosts(job, facts):
        return ResumePoint(last_writer, last_writer)
    if not kept or not others:
        return ResumePoint(chief.host)
    note = (
        f"before the start, `keep` of {kept.host} ({kept.description}) is copied to "
        f"{fold_names(others)}, because every worker reads it"
    )
    return ResumePoint(kept.host, kept.host, (note,))


def resume_text(job: Job, facts: HostFacts) -> str | None:
    """Return what training resumes from, such as "checkpoints: model.ckpt-1200 on n2".

    Returns None if training starts from zero. `facts`: the facts of one host, namely the host of
    the task that writes checkpoints.
    """
    kept = [
        HostKeep(facts.host, fact, fact.newest) for fact in keep_folders_with_content(job, facts)
    ]
    return f"{', '.join(each.description for each in kept)} on {facts.host}" if kept else None


def later_step_notes(job: Job, facts: FactsByHost, used_host: str) -> Notes:
    """Return a note for each host with a checkpoint of a later step than the one that is used.

    Training resumes from the checkpoint that was written last. Another host may have a checkpoint
    that was written before, but at a later step. Example: a host with step 900 was unreachable, and
    training resumed from step 500 on another host. `used_host`: the host on which training resumes.
    """
    steps = {
        kept.fact.path: kept.fact.step or 0
        for kept in _keep_folders_of_all_hosts(job, facts)
        if kept.host == used_host
    }
    ended_at = host_and_time_of_last_success(facts)[1]
    return tuple(
        f"{kept.host} has a checkpoint of a later step ({kept.description}), but the checkpoint of "
        f"{used_host} is used, because it was written later; to continue from that of {kept.host}: "
        + command_on_host(
            kept.host,
            "touch",
            layout.keep_dir(facts[kept.host].workdir, job.name, f"{kept.fact.path}/checkpoint"),
        )
        for kept in _keep_folders_of_all_hosts(job, facts)
        if 0 < steps.get(kept.fact.path, 0) < (kept.fact.step or 0) and kept.changed_at > ended_at
    )


def _keep_host_error(kept: HostKeep, default: Seat, role_hosts: tuple[str, ...]) -> Refused:
    task, role = default.task, default.role
    full, foreign = f"has no free place for {task}", f"does not have the role {role}"
    return Refused(
        f"the newest `keep` ({kept.description}) is on {kept.host}, and this host "
        f"{full if kept.host in role_hosts else foreign}: {task} would start from zero",
        where=f"host {kept.host}",
        next=f"add {kept.host} to the role {role}, or copy this `keep`: `tfdeploy fetch --keep "
        f"--onto {default.host}`, or continue from what {default.host} has: "
        "`tfdeploy launch --ignore-keep`, or start from zero: `tfdeploy launch --fresh`",
    )
