"""Decide what may be removed from hosts and from this machine, by the rules of `tfdeploy clean`.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfdeploy.model.answers.clean import CleanItem

RUN, HALF, SECRET_FILE = "run", "half", "secret file"


@dataclass(frozen=True)
class Rules:
    """What stays: of each job the `newest` ended runs, and those that ended less than `older_s`
    seconds ago. `named`: data sets that stay; None: all do. `secret_paths`: job -> secret files
    that must not stay, as `secret_paths` returns them."""

    newest: int = 0
    older_s: float = 0.0
    named: tuple[str, ...] | None = None
    secret_paths: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)


def runs_that_stay(
    items_by_host: Mapping[str, Iterable[CleanItem]], rules: Rules, now: float
) -> set[tuple[str, str]]:
    """Return (job, run) of runs that no host may remove: alive on one of them, or kept by the
    rules. `items_by_host`: what each host listed."""
    stay: set[tuple[str, str]] = set()
    ended: dict[tuple[str, str], float] = {}
    for items in items_by_host.values():
        for item in items:
            if item.kind == RUN:
                key = item.job, item.name
                if item.stays:
                    stay.add(key)
                else:
                    ended[key] = max(ended.get(key, 0.0), item.ended or 0.0)
    return stay | kept({key: when for key, when in ended.items() if key not in stay}, rules, now)


def kept(ended: Mapping[tuple[str, str], float], rules: Rules, now: float) -> set[tuple[str, str]]:
    """Return (job, run) of ended runs that the rules keep. `ended`: when the last host ended each,
    in UTC seconds."""
    recent = {key for key, when in ended.items() if now - when < rules.older_s}
    for of_job in {job for job, _ in ended}:
        runs = sorted(
            (key for key in ended if key[0] == of_job), key=ended.__getitem__, reverse=True
        )
        recent.update(runs[: rules.newest])
    return recent


def goes(item: CleanItem, stay: set[tuple[str, str]]) -> bool:
    """True if the item is removed. `stay`: the runs that stay. A secret file is removed from a run
    that stays, else with its run."""
    if item.stays:
        return False
    if item.kind == SECRET_FILE:
        return (item.job, item.name.split("/")[1]) in stay
    run = item.name if item.kind == RUN else run_of_half(item.name) if item.kind == HALF else None
    return run is None or (item.job, run) not in stay


def run_of_half(name: str) -> str | None:
    """Return the run in whose folder a partial lies: "runs/RUN/..."."""
    words = name.split("/")
    return words[1] if len(words) == 3 and words[0] == "runs" else None
