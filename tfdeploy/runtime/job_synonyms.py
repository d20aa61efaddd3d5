"""Which job of a program's cluster stands for which role of the plan. The plan and the task both ask."""

from __future__ import annotations

from typing import Dict, Iterable

# how names that programs have for a role begin
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
    """Job of the program -> role of the plan: by its name, else by a synonym (`master`, `work`). A single job that is left
    stands for the workers where no other does."""
    jobs = list(written)
    found: Dict[str, str] = {}
    for named in (str, synonym):
        for job in jobs:
            role = named(job)
            if job not in found and role in plan and role not in found.values():
                found[job] = role
    left = [job for job in jobs if job not in found]
    if len(left) == 1 and "worker" in plan and "worker" not in found.values() and (len(jobs) == 1 or "ps" in found.values()):
        found[left[0]] = "worker"
    return {job: found[job] for job in jobs if job in found}


def synonym(job: str) -> str:
    """The role that a name like `work` or `PS_HOSTS` stands for; "" for other names."""
    return next((role for name, role in _SYNONYMS.items() if job.lower().startswith(name)), "")
