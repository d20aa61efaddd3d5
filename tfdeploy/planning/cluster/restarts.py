"""Decides which tasks restart after a task fails, and describes the decision for the plan.

The decision depends on the mode.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules_of
from tfdeploy.planning.cluster.placement import Seat, checkpoint_writer_seat


def restart_scope(job: Job, role: str) -> str:
    """Return what restarts after a task of this role fails.

    "alone": only this task. "gang": all tasks that the mode restarts together. "": nothing.
    """
    if not job.restart_max:
        return ""
    return "gang" if role in rules_of(job.mode).breaks else "alone"


def keep_source_host(job: Job, seats: Sequence[Seat]) -> str | None:
    """Return the host whose `keep` folders are copied to the others before tasks restart together.

    The result is the host of the chief, or of worker 0 if there is no chief. Returns None if the
    mode needs no copy, or if the job has no restarts or no `keep`.
    """
    supplied = job.restart_max and job.keep and rules_of(job.mode).supplied
    return checkpoint_writer_seat(seats).host if supplied else None


def restart_summary(job: Job, roles: Sequence[str]) -> str:
    """Describe in one line when and how tasks restart.

    Example: "at most 3 times in a row (ten minutes without a failure reset the count), after pauses
    of 1 s to 60 s; a failed worker restarts alone, on its host and port".
    """
    if not job.restart_max:
        return "never (restart.max is 0)"
    mode = rules_of(job.mode)
    together = [role for role in roles if role in mode.gang]
    broken = [role for role in roles if role in mode.breaks]
    alone = [role for role in roles if role not in mode.breaks]
    parts = []
    if broken:
        servers = " and ".join(role for role in together if role in mode.serving_roles)
        everyone = " and ".join(together)
        order = f", {servers} first" if servers not in ("", everyone) else ""
        supplied = ", from copies of the chief's `keep`" if mode.supplied and job.keep else ""
        parts.append(
            f"if a {' or '.join(broken)} fails, every {everyone} restarts{order}{supplied}"
        )
    if alone:
        parts.append(f"a failed {' or '.join(alone)} restarts alone, on its host and port")
    if job.same_error_ends:
        parts.append("no restart if the same error occurs twice before the first step")
    first, longest = (f"{seconds:g} s" for seconds in job.restart_backoff_s)
    return (
        f"at most {job.restart_max} times in a row (ten minutes without a failure reset the "
        f"count), after pauses of {first} to {longest}; {'; '.join(parts)}"
    )
