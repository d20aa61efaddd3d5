"""`launch --fresh`: what is set aside, in words, and what to type to go on from it again. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

from tfdeploy.model.facts import HostFacts, KeepFact
from tfdeploy.model.folding import fold_names
from tfdeploy.model.job import Job
from tfdeploy.model.units import in_bytes


def without_keep(facts: Mapping[str, HostFacts]) -> dict[str, HostFacts]:
    """The facts as they will be once `keep` is set aside on every host."""
    return {name: replace(each, keep=()) for name, each in facts.items()}


def notes(job: Job, facts: Mapping[str, HostFacts], run: str) -> tuple[str, ...]:
    """A note for each `keep` folder that holds something, and how to get all of it back."""
    if not job.keep:
        return ("--fresh: the job has no `keep`, so every launch starts from zero",)
    found: dict[tuple[str, str], list[str]] = {}
    for name, host in facts.items():
        for fact in host.keep:
            if fact.path in job.keep and fact.newest > 0:
                found.setdefault((fact.path, _content(fact)), []).append(name)
    if not found:
        return ("--fresh: no host holds anything in `keep`",)
    said = [
        f"--fresh: {path} ({content}) on {fold_names(hosts)} is kept there as keep/{path}.before-{run}"
        for (path, content), hosts in found.items()
    ]
    holders = [name for names in found.values() for name in names]
    folder = f"{facts[holders[0]].workdir}/{job.name}/keep"
    return (*said, f"to go on from it again, once {run} has ended: {_undo(job, folder, run)}")


def _content(fact: KeepFact) -> str:
    files = f"{fact.files} file{'' if fact.files == 1 else 's'}, {in_bytes(fact.bytes)}"
    if fact.step is not None:
        return f"{files}, step {fact.step}"
    return f"{files}, {fact.checkpoint}" if fact.checkpoint else files


def _undo(job: Job, folder: str, run: str) -> str:
    """For all hosts at once, for each may hold what the run wrote meanwhile: that is set aside in turn. A second time it does
    nothing."""
    paths = " ".join(map(shlex.quote, job.keep))
    swap = 'mv "$p" "$p.after-$r" || mkdir "$p.after-$r"; mv "$p.before-$r" "$p"'
    each = f'for p in {paths}; do [ -e "$p.after-$r" ] || {{ {swap}; }}; done'
    script = f"cd {shlex.quote(folder)} && r={run} && {each} 2>/dev/null; true"
    return shlex.join(("tfdeploy", "exec", "--", "sh", "-c", script))
