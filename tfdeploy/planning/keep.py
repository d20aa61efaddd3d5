"""Where training goes on: the deciding task returns to the host with the newest `keep`, or launch refuses.

Training never restarts from zero in silence. Reads facts only; it neither fetches nor looks at a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts, KeepFact
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job
from tfdeploy.planning import checks
from tfdeploy.planning.options import Options
from tfdeploy.planning.placement import Seat, Wish, decider, place


@dataclass(frozen=True)
class Kept:
    """The newest thing that earlier runs left on one host; `when` is in UTC seconds of the control machine."""

    host: str
    fact: KeepFact
    when: float

    @property
    def words(self) -> str:
        return f"{self.fact.path}: {self.fact.checkpoint or 'files of an earlier run'}"


def newest(job: Job, facts: Mapping[str, HostFacts], role_hosts: tuple[str, ...], prefer: str) -> Kept | None:
    """The newest kept folder, or None. A checkpoint, on any host, counts before other files; of those, which any task
    may write, the ones on `role_hosts` count before all others.

    Hosts that show the very same thing share a disk: then `prefer` is as good as any of them.
    """
    found = [
        Kept(name, fact, fact.newest - facts[name].clock_skew_s)
        for name in sorted(facts)
        for fact in facts[name].keep
        if fact.path in job.keep and fact.newest > 0
    ]
    checkpoints = [kept for kept in found if kept.fact.checkpoint]
    at_home = [kept for kept in found if kept.host in role_hosts]
    best = max(checkpoints or at_home or found, key=lambda kept: kept.when, default=None)
    return next((kept for kept in found if best and kept.host == prefer and kept.fact == best.fact), best)


def seat_tasks(
    wished: Mapping[str, Wish], hosts: Mapping[str, Host], facts: Mapping[str, HostFacts], job: Job, options: Options
) -> tuple[tuple[Seat, ...], tuple[str, ...]]:
    """The placement, with the deciding task on the host that holds the newest `keep`; and what to say about that.

    Raises what `place` and `checks.seats` raise, and Refused when that host cannot have the deciding task.
    """
    seats = place(wished, hosts, facts, {})
    checks.seats(job, seats)
    plain = decider(seats)
    kept = newest(job, facts, wished[plain.role].hosts, plain.host)
    if kept is None or kept.host == plain.host:
        return seats, ()
    if options.ignore_keep:
        return seats, (f"--ignore-keep: the newest `keep` ({kept.words}) stays unused on {kept.host}",)
    if kept.host in wished[plain.role].hosts:
        seats = place(wished, hosts, facts, {plain.role: kept.host})
    back = decider(seats)
    if back.host != kept.host:
        raise _elsewhere(kept, plain.task, wished[plain.role].hosts)
    why = f"back on {kept.host}, which holds the newest `keep` ({kept.words})"
    seats = tuple(replace(seat, why=f"{why}; {seat.why}") if seat is back else seat for seat in seats)
    return seats, (f"{plain.task} is {why}; without it: {plain.host}",)


def resume(job: Job, facts: HostFacts) -> str | None:
    """What the deciding task will find on its host: "checkpoints: model.ckpt-1200 on n2". None: it starts from zero."""
    kept = [Kept(facts.host, fact, fact.newest) for fact in facts.keep if fact.path in job.keep and fact.newest > 0]
    return f"{', '.join(each.words for each in kept)} on {facts.host}" if kept else None


def _elsewhere(kept: Kept, task: str, role_hosts: tuple[str, ...]) -> Refused:
    role = task.split(":")[0]
    where = f"not a host of the role {role}" if kept.host not in role_hosts else f"without a free place for {task}"
    return Refused(
        f"the newest `keep` ({kept.words}) is on {kept.host}, which is {where}: {task} would start from zero",
        where=f"host {kept.host}",
        next=f"add {kept.host} to the role {role}, bring it here with `tfdeploy fetch`, "
        "or start without it: `tfdeploy launch --ignore-keep`",
    )
