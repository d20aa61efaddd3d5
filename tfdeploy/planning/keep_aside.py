"""Writes the note of `launch --fresh`: which `keep` folders are renamed, on which hosts.

This module itself renames nothing.
"""

from __future__ import annotations

from collections import defaultdict

from tfdeploy.model.facts import FactsByHost, KeepFolderFact
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Notes
from tfdeploy.planning.keep import keep_folders_with_content
from tfdeploy.text.names import fold_names
from tfdeploy.text.units import format_bytes, format_count


def notes(job: Job, facts: FactsByHost, run: str) -> Notes:
    """Return a note that names every `keep` folder with content.

    If there is no such folder, the note is that --fresh has no effect.
    """
    if not job.keep:
        return ("--fresh has no effect: the job has no `keep`, so every launch starts from zero",)
    hosts_by_content: defaultdict[str, list[str]] = defaultdict(list)
    for name, host in facts.items():
        for fact in keep_folders_with_content(job, host):
            hosts_by_content[_content_text(fact)].append(name)
    if not hosts_by_content:
        return ("--fresh has no effect: no host has files in `keep`",)
    folders = (f"{text} on {fold_names(hosts)}" for text, hosts in hosts_by_content.items())
    return (
        f"--fresh deletes nothing, but renames these folders to NAME.before-{run}: "
        f'{", ".join(folders)} (docs/fetch.md, "Starting from zero", says how to restore them)',
    )


def _content_text(fact: KeepFolderFact) -> str:
    checkpoint = fact.checkpoint if fact.step is None else f"step {fact.step}"
    known = (format_count(fact.files, "file"), format_bytes(fact.bytes), checkpoint)
    return f"keep/{fact.path} ({', '.join(filter(None, known))})"
