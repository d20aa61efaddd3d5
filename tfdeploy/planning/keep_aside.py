"""`launch --fresh`: says which `keep` folders are set aside, and which command brings them back.
Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

from tfdeploy.model.facts import HostFacts, KeepFact
from tfdeploy.model.folding import fold_names
from tfdeploy.model.job import Job
from tfdeploy.model.units import in_bytes


def without_keep(facts: Mapping[str, HostFacts]) -> dict[str, HostFacts]:
    """Return the facts as they are after `keep` is set aside on every host."""
    return {name: replace(each, keep=()) for name, each in facts.items()}


def notes(job: Job, facts: Mapping[str, HostFacts], run: str) -> tuple[str, ...]:
    """Return a note for each `keep` folder that holds something, and the command that brings all of
    them back."""
    if not job.keep:
        return ("--fresh: the job has no `keep`, so every launch starts from zero",)
    found: dict[tuple[str, str], list[str]] = {}
    for name, host in facts.items():
        for fact in host.keep:
            if fact.path in job.keep and fact.newest > 0:
                found.setdefault((fact.path, _content(fact)), []).append(name)
    if not found:
        return ("--fresh: no host holds anything in `keep`",)
    lines = [
        f"--fresh: {path} ({content}) on {fold_names(hosts)} is kept there as keep/{path}.before-{run}"
        for (path, content), hosts in found.items()
    ]
    holders = [name for names in found.values() for name in names]
    folder = f"{facts[holders[0]].workdir}/{job.name}/keep"
    return (*lines, f"to go on from it again, once {run} has ended: {_undo_command(job, folder, run)}")


def _content(fact: KeepFact) -> str:
    files = f"{fact.files} file{'' if fact.files == 1 else 's'}, {in_bytes(fact.bytes)}"
    if fact.step is not None:
        return f"{files}, step {fact.step}"
    return f"{files}, {fact.checkpoint}" if fact.checkpoint else files


def _undo_command(job: Job, folder: str, run: str) -> str:
    """Return one command for all hosts. It sets aside what the run has written there, and does
    nothing a second time."""
    paths = " ".join(map(shlex.quote, job.keep))
    swap = 'mv "$p" "$p.after-$r" || mkdir "$p.after-$r"; mv "$p.before-$r" "$p"'
    each = f'for p in {paths}; do [ -e "$p.after-$r" ] || {{ {swap}; }}; done'
    script = f"cd {shlex.quote(folder)} && r={run} && {each} 2>/dev/null; true"
    return shlex.join(("tfdeploy", "exec", "--", "sh", "-c", script))
