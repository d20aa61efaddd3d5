"""Who starts again after whose death, as `3-facts` measured it for each mode, and the words that say so in a plan."""

from __future__ import annotations

from collections.abc import Sequence

from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules
from tfdeploy.planning.cluster.placement import Seat


def on_death(job: Job, role: str) -> str:
    """`alone`, `gang`, or an empty word where nothing starts again."""
    if not job.restart_max:
        return ""
    return "gang" if role in rules(job.mode).breaks else "alone"


def in_gang(job: Job, role: str) -> bool:
    return bool(job.restart_max) and role in rules(job.mode).gang


def supply_from(job: Job, seats: Sequence[Seat]) -> str | None:
    """The chief's host, where all of the gang read what it kept."""
    if not (job.restart_max and job.keep and rules(job.mode).supplied):
        return None
    order = [seat for role in ("chief", "worker") for seat in seats if seat.role == role and seat.index == 0]
    return order[0].host if order else None


def words(job: Job, roles: Sequence[str]) -> str:
    """As in: at most 3 times without ten good minutes between, after 1 s to 60 s; worker: alone, on its host and port."""
    if not job.restart_max:
        return "never (restart.max is 0)"
    made_of = rules(job.mode)
    together = [role for role in roles if role in made_of.gang]
    broken = [role for role in roles if role in made_of.breaks]
    alone = [role for role in roles if role not in made_of.breaks]
    says = []
    if broken:
        servers = [role for role in together if role in made_of.serves]
        order = f", {' and '.join(servers)} first" if servers and len(servers) < len(together) else ""
        supplied = ", with the chief's `keep` on every disk" if made_of.supplied and job.keep else ""
        says.append(f"{' or '.join(broken)}: every {' and '.join(together)} together{order}{supplied}")
    if alone:
        says.append(f"{' or '.join(alone)}: alone, on its host and port")
    first, longest = (f"{seconds:g} s" for seconds in job.restart_backoff_s)
    return f"at most {job.restart_max} times without ten good minutes between, after {first} to {longest}; {'; '.join(says)}"
