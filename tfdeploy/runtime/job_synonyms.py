"""Which job of a program's cluster stands for which role of the plan. Used by the plan and by the
task."""

from __future__ import annotations

from typing import Dict, Iterable

# how a program's name of a role begins -> the role
_SYNONYMS = {
    "master": "chief",
    "ps": "ps",
    "param": "ps",
    "server": "ps",
    "work": "worker",
    "train": "worker",
    "slave": "worker",
}


def counterparts(written: Iterable[str], plan: Iterable[str]) -> Dict[str, str]:
    """Job of the program -> role of the plan: by the same name, else by a synonym (`master`,
    `work`). A single job that remains stands for the workers if no other does."""
    jobs = list(written)
    roles_by_job: Dict[str, str] = {}
    for named in (str, synonym):
        for job in jobs:
            role = named(job)
            if job not in roles_by_job and role in plan and role not in roles_by_job.values():
                roles_by_job[job] = role
    left = [job for job in jobs if job not in roles_by_job]
    if (
        len(left) == 1
        and "worker" in plan
        and "worker" not in roles_by_job.values()
        and (len(jobs) == 1 or "ps" in roles_by_job.values())
    ):
        roles_by_job[left[0]] = "worker"
    return {job: roles_by_job[job] for job in jobs if job in roles_by_job}


def synonym(job: str) -> str:
    """The role for a name such as `work` or `PS_HOSTS`; "" for other names."""
    return next((role for name, role in _SYNONYMS.items() if job.lower().startswith(name)), "")
