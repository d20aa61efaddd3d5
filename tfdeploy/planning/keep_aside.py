"""Writes the notes of `launch --fresh`: which `keep` folders are renamed, and how to restore them.

This module itself renames nothing.
"""

from __future__ import annotations

import shlex
from collections import defaultdict

from tfdeploy.model.facts import FactsByHost, KeepFolderFact
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Notes
from tfdeploy.model.text.names import fold_names, group_equal
from tfdeploy.model.text.nexts import command_on_host
from tfdeploy.model.text.units import format_bytes, format_count
from tfdeploy.planning.keep import keeps_with_content


def notes(job: Job, facts: FactsByHost, run: str) -> Notes:
    """Return a note for each `keep` folder with content, then a note on how to restore all of them.

    If there is no such folder, the only note is that --fresh has no effect.
    """
    if not job.keep:
        return ("--fresh has no effect: the job has no `keep`, so every launch starts from zero",)
    hosts_by_content: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, host in facts.items():
        for fact in keeps_with_content(job, host):
            hosts_by_content[fact.path, _content_text(fact)].append(name)
    if not hosts_by_content:
        return ("--fresh has no effect: no host has files in `keep`",)
    lines = [
        f"--fresh: {path} ({content}) on {fold_names(hosts)} is kept there as "
        f"keep/{path}.before-{run}"
        for (path, content), hosts in hosts_by_content.items()
    ]
    scripts = group_equal(
        {name: _undo_script(job, host.workdir, run) for name, host in facts.items()}
    )
    commands = [command_on_host(fold_names(names), script) for names, script in scripts]
    if len(scripts) == 1:
        commands = [f"`{shlex.join(('tfdeploy', 'exec', '--', scripts[0][1]))}`"]
    return (
        *lines,
        f"to restore the former `keep` folders after {run} has ended: {', and '.join(commands)}",
    )


def _content_text(fact: KeepFolderFact) -> str:
    checkpoint = fact.checkpoint if fact.step is None else f"step {fact.step}"
    known = (format_count(fact.files, "file"), format_bytes(fact.bytes), checkpoint)
    return ", ".join(filter(None, known))


def _undo_script(job: Job, workdir: str, run: str) -> str:
    """Return a shell line that restores the former `keep` folders of a host.

    The line also renames the folders that were written since the launch. If it is run a second
    time, its `mkdir` fails and it does nothing. So it can be run on several hosts that share one
    workdir.
    """
    paths = " ".join(map(shlex.quote, job.keep))
    swap = 'mkdir "$p.after-$r" && { mv -T "$p" "$p.after-$r"; mv -T "$p.before-$r" "$p"; }'
    folder = shlex.quote(f"{workdir}/{job.name}/keep")
    return (
        f"cd {folder} 2>/dev/null || exit 0; r={run}; for p in {paths}; do {swap}; done "
        "2>/dev/null; true"
    )
