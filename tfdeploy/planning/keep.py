"""Where training goes on: the deciding task returns to the host with the newest `keep`, or launch refuses; in mirrored
that `keep` goes to every host instead.

Training never restarts from zero in silence. Reads facts only; it neither fetches nor looks at a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts, KeepFact
from tfdeploy.model.folding import fold_names
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules
from tfdeploy.planning import checks
from tfdeploy.planning.cluster.placement import Seat, decider, place
from tfdeploy.planning.cluster.role_requests import RoleRequest
from tfdeploy.planning.options import Options

CLOCK_SLACK_S = 1.0


@dataclass(frozen=True)
class Kept:
    """The newest thing that earlier runs left on one host; `when` is in UTC seconds of the control machine."""

    host: str
    fact: KeepFact
    when: float

    @property
    def words(self) -> str:
        return f"{self.fact.path}: {self.fact.checkpoint or 'files of an earlier run'}"


@dataclass(frozen=True)
class Going:
    """`host`: where the task that writes checkpoints finds what it goes on from. `copied_from`: whose `keep` all hosts get
    before the start."""

    host: str
    copied_from: str | None = None
    notes: tuple[str, ...] = ()


def newest(job: Job, facts: Mapping[str, HostFacts], role_hosts: tuple[str, ...], prefer: str) -> Kept | None:
    """The newest kept folder, or None. A checkpoint, on any host, counts before other files; of those, which any task
    may write, the ones on `role_hosts` count before all others.

    Hosts that show the very same thing share a disk, or were given it: then `prefer` is as good as any of them.
    """
    found = [
        Kept(name, fact, fact.time - facts[name].clock_skew_s)
        for name in sorted(facts)
        for fact in facts[name].keep
        if fact.path in job.keep and fact.newest > 0
    ]
    checkpoints = [kept for kept in found if kept.fact.checkpoint]
    at_home = [kept for kept in found if kept.host in role_hosts]
    candidates = checkpoints or at_home or found
    latest = max((kept.when for kept in candidates), default=0.0)
    # Clocks are compared over a network: of what seems written at one time, the choice is the same at every look.
    best = next((kept for kept in candidates if kept.when >= latest - CLOCK_SLACK_S), None)
    return next((kept for kept in found if best and kept.host == prefer and kept.fact.same_as(best.fact)), best)


def seat_tasks(
    wished: Mapping[str, RoleRequest], hosts: Mapping[str, Host], facts: Mapping[str, HostFacts], job: Job, options: Options
) -> tuple[tuple[Seat, ...], Going]:
    """The placement, and where training goes on: the deciding task goes to the host that holds the newest `keep`; where
    every worker reads the checkpoints, they go to all of them instead.

    Raises what `place` and `checks.seats` raise, and Refused when that host cannot have the deciding task.
    """
    seats = place(wished, hosts, facts, {})
    checks.seats(job, seats)
    plain = decider(seats)
    if rules(job.mode).all_decide:
        return seats, _copied(job, facts, seats, plain, options)
    kept = newest(job, facts, wished[plain.role].hosts, plain.host)
    if kept is None or kept.host == plain.host:
        return seats, Going(plain.host)
    if options.ignore_keep:
        return seats, Going(plain.host, notes=(f"--ignore-keep: the newest `keep` ({kept.words}) stays unused on {kept.host}",))
    if kept.host in wished[plain.role].hosts:
        with_it = ("worker",) if plain.role == rules(job.mode).lead else ()  # its first server may be who writes
        seats = place(wished, hosts, facts, dict.fromkeys((plain.role, *with_it), kept.host))
    back = decider(seats)
    if back.host != kept.host:
        raise _elsewhere(kept, plain, wished[plain.role].hosts)
    why = f"back on {kept.host}, which holds the newest `keep` ({kept.words})"
    seats = tuple(replace(seat, why=f"{why}; {seat.why}") if seat is back else seat for seat in seats)
    return seats, Going(back.host, notes=(f"{plain.task} is {why}; without it: {plain.host}",))


def _copied(job: Job, facts: Mapping[str, HostFacts], seats: tuple[Seat, ...], chief: Seat, options: Options) -> Going:
    """Every worker reads what the chief saved, so that all hosts get the same: the newest checkpoint, else what the
    chief's own host holds."""
    kept = newest(job, facts, (chief.host,), chief.host)
    if kept is None:
        return Going(chief.host)
    if kept.host != chief.host and options.ignore_keep:
        unused = f"--ignore-keep: the newest `keep` ({kept.words}) stays unused on {kept.host}"
        return Going(chief.host, chief.host, (unused,))  # what the others hold is set aside: all start from the same
    others = [name for name in dict.fromkeys(seat.host for seat in seats) if name != kept.host]
    if not others:
        return Going(chief.host)
    return Going(
        kept.host, kept.host, (f"`keep` of {kept.host} ({kept.words}) goes to {fold_names(others)} first: every worker reads it",)
    )


def resume(job: Job, facts: HostFacts) -> str | None:
    """What the deciding task will find on its host: "checkpoints: model.ckpt-1200 on n2". None: it starts from zero."""
    kept = [Kept(facts.host, fact, fact.newest) for fact in facts.keep if fact.path in job.keep and fact.newest > 0]
    return f"{', '.join(each.words for each in kept)} on {facts.host}" if kept else None


def _elsewhere(kept: Kept, plain: Seat, role_hosts: tuple[str, ...]) -> Refused:
    task, role = plain.task, plain.role
    where = f"not a host of the role {role}" if kept.host not in role_hosts else f"without a free place for {task}"
    return Refused(
        f"the newest `keep` ({kept.words}) is on {kept.host}, which is {where}: {task} would start from zero",
        where=f"host {kept.host}",
        next=f"add {kept.host} to the role {role}, copy it: `tfdeploy fetch --keep --onto {plain.host}`, "
        "or start without it: `tfdeploy launch --ignore-keep`",
    )
