"""Define the answers of the agent's verbs `clean.*`: the items in a workdir that no run needs, and
the items that were removed. Decide by the rules of `tfdeploy clean` what may be removed from hosts
and from this machine. The functions are pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tfdeploy.text.typed import (
    Answer,
    Count,
    EmptyAnswer,
    Line,
    NameOrNone,
    Names,
    Seconds,
    ShortText,
    StreamingVerb,
)

# Only `clean --everything` lists the last six kinds.
Kind = Literal[
    "run",
    "release",
    "data",
    "environment",
    "half",
    "secret file",
    "releases",
    "keep",
    "environments",
    "rest",
    "audit log",
    "agent",
]


class CleanItem(Answer):
    """`bytes`: the size on the disk. `ended`: when the run ended. `stays`: why the item must not be
    removed, or "". `live`: whether a process of the item is alive, or may be alive."""

    kind: Kind
    job: NameOrNone
    name: Line
    bytes: Count
    ended: Seconds | None
    stays: Line
    live: bool


class CleanList(Answer):
    """`workdir_id`: an id that is equal on all hosts that share the workdir, or "" if it is not
    known. `jobs`: all jobs of this workdir."""

    workdir_id: ShortText
    jobs: Names


CLEAN_LIST = StreamingVerb("clean.list", CleanItem, CleanList)
CLEAN_REMOVE = StreamingVerb("clean.remove", CleanItem, EmptyAnswer)
CLEAN_WORKDIR = StreamingVerb("clean.workdir", CleanItem, EmptyAnswer)
CLEAN_EVERYTHING = StreamingVerb("clean.everything", CleanItem, EmptyAnswer)


# The paths of secret files: {job: {"code": [path in the code folder], "data": [data set/path in
# it]}}
SecretPathsByJob = Mapping[str, Mapping[str, list[str]]]
RUN, HALF, SECRET_FILE = "run", "half", "secret file"


@dataclass(frozen=True)
class CleanRules:
    """What `clean` keeps: the newest `newest_kept` ended runs of each job, and the runs that ended
    less than `min_age_s` seconds ago. `kept_data_sets`: the data sets that are kept; if None, all
    are kept. `secret_paths_by_job`: secret files that older versions may have sent (see
    operations/sending/withheld_files.py). These files are removed even from a kept run."""

    newest_kept: int = 0
    min_age_s: float = 0.0
    kept_data_sets: tuple[str, ...] | None = None
    secret_paths_by_job: SecretPathsByJob = field(default_factory=dict)


def find_staying_runs(
    items_by_host: Mapping[str, Iterable[CleanItem]], rules: CleanRules, now: float
) -> set[tuple[str, str]]:
    """Return (job, run) of the runs that no host may remove, because a host still runs them or the
    rules keep them. `items_by_host`: the items that each host listed."""
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
    return stay | select_kept_runs(
        {key: when for key, when in ended.items() if key not in stay}, rules, now
    )


def select_kept_runs(
    ended_at: Mapping[tuple[str, str], float], rules: CleanRules, now: float
) -> set[tuple[str, str]]:
    """Return (job, run) of the ended runs that the rules keep. `ended_at`: {(job, run): time in UTC
    seconds at which the last host of the run ended it}."""
    recent = {key for key, when in ended_at.items() if now - when < rules.min_age_s}
    for job_name in {job for job, _ in ended_at}:
        runs = sorted(
            (key for key in ended_at if key[0] == job_name), key=ended_at.__getitem__, reverse=True
        )
        recent.update(runs[: rules.newest_kept])
    return recent


def must_be_removed(item: CleanItem, kept_runs: set[tuple[str, str]]) -> bool:
    """True if the item must be removed. `kept_runs`: the runs that are kept. A secret file is an
    item of its own only if its run is kept; otherwise the file is removed together with the run."""
    if item.stays:
        return False
    if item.kind == SECRET_FILE:
        return (item.job, item.name.split("/")[1]) in kept_runs
    run = (
        item.name
        if item.kind == RUN
        else run_of_partial_file(item.name)
        if item.kind == HALF
        else None
    )
    return run is None or (item.job, run) not in kept_runs


def run_of_partial_file(path: str) -> str | None:
    """Return the run to which a partial file belongs, from the file's path such as "runs/RUN/NAME".
    Return None if the file is not in the folder of a run."""
    steps = path.split("/")
    return steps[1] if len(steps) == 3 and steps[0] == "runs" else None
