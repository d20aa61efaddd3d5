"""`tfdeploy clean` for people: what goes, with its size, a row for each thing and all hosts that have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfdeploy.model.answers.clean import CleanItem
from tfdeploy.model.folding import fold_names
from tfdeploy.ui.amounts import in_bytes
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import show_rows
from tfdeploy.ui.terminal import Terminal


def show_things(terminal: Terminal, things: Mapping[str, Iterable[CleanItem]], local: Mapping[str, int]) -> None:
    """`things`: by host; `local`: runs that this machine remembers, with their bytes."""
    folded: dict[tuple[str, str, str], dict[str, int]] = {}
    for host, items in things.items():
        for item in items:
            folded.setdefault((item.kind, item.job, item.name), {})[host] = item.bytes
    rows = [
        (kind, job, name, in_bytes(sum(hosts.values())), fold_names(map(clean, hosts)))
        for (kind, job, name), hosts in folded.items()
    ]
    if local:
        rows.append(("record", "", f"{len(local)} runs", in_bytes(sum(local.values())), "this machine"))
    show_rows(terminal, ("what", "job", "name", "size", "hosts"), rows)


def staying_words(things: Mapping[str, Iterable[CleanItem]]) -> list[str]:
    """A line for each thing that stays, with why."""
    folded: dict[tuple[str, str, str], list[str]] = {}
    for host, items in things.items():
        for item in items:
            folded.setdefault((item.kind, item.name, item.stays), []).append(host)
    return [f"[{fold_names(hosts)}] {kind} {clean(name)} stays: {clean(why)}" for (kind, name, why), hosts in folded.items()]
