"""Define the answers of the `clean` verbs: the items in a workdir that no run needs, and the items
that were removed."""

from __future__ import annotations

from typing import Literal

from tfdeploy.model.typed import (
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
