"""Map the names of jobs in a program's cluster to the roles of the plan.

The planner uses this module on the control machine, and the runtime uses it in each task."""

from __future__ import annotations

from typing import Dict, Iterable

# The beginning of a job's name -> the role of a job with such a name.
_SYNONYMS = {
    "master": "chief",
    "ps": "ps",
    "param": "ps",
    "server": "ps",
    "work": "worker",
    "train": "worker",
    "slave": "worker",
}


def map_jobs_to_roles(written: Iterable[str], plan: Iterable[str]) -> Dict[str, str]:
    """Return a mapping from jobs of the program to roles of the plan. Jobs without a role are left
    out. `written`: the jobs of the program. `plan`: the roles of the plan.

    A job gets the role with the same name, or else the role for which the job's name is a synonym
    (`master`, `work`). After that, a job with any other name gets the role `worker` if:
    - it is the only job without a role,
    - the plan has a role `worker`, and no job has this role, and
    - it is the program's only job, or one of the other jobs has the role `ps`."""
    jobs = list(written)
    roles_by_job: Dict[str, str] = {}
    for role_of in (str, role_of_name):
        for job in jobs:
            role = role_of(job)
            if job not in roles_by_job and role in plan and role not in roles_by_job.values():
                roles_by_job[job] = role
    unmapped = [job for job in jobs if job not in roles_by_job]
    if (
        len(unmapped) == 1
        and "worker" in plan
        and "worker" not in roles_by_job.values()
        and (len(jobs) == 1 or "ps" in roles_by_job.values())
    ):
        roles_by_job[unmapped[0]] = "worker"
    return {job: roles_by_job[job] for job in jobs if job in roles_by_job}


def role_of_name(job: str) -> str:
    """Return the role to which a name such as `work` or `PS_HOSTS` refers; "" for other names."""
    return next((role for name, role in _SYNONYMS.items() if job.lower().startswith(name)), "")
