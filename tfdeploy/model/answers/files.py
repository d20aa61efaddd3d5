"""Answers about files: releases, data sets, `keep` folders, and what is fetched."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tfdeploy.model.answers.bounds import Big, Count, Digest, Names, Path, Paths, Place
from tfdeploy.model.answers.verb import Answer, Flow, Nothing, Verb, optional

Row = list[Path | Big | None]  # [path, size, mtime_ns, link target or null]: model/listing.py reads it


class Present(Answer):
    present: bool


class Begun(Answer):
    """`staging`: where rsync puts the missing ones. `rsync`: whether the host has it."""

    staging: Place
    missing: Paths
    linked: Count
    rsync: bool


class Changed(Answer):
    """Those whose content is not the manifest's."""

    changed: Paths


class DataState(Answer):
    digest: Digest


class Folder(Answer):
    """Where rsync puts what comes."""

    folder: Place


class DataPlace(Folder):
    """`files` that lie there, and how many of them the sync would delete, where that was asked."""

    files: Count = 0
    losing: Count = 0


class DataCommitted(Answer):
    digest: Digest
    ok: bool


class Missing(Answer):
    """Files that did not arrive whole."""

    missing: Paths


class Rows(Answer):
    rows: Annotated[list[Row], Meta(min_length=1, max_length=10_000)]


class Listed(Answer):
    """`sharing`: the hosts of the run that have this very workdir."""

    root: Place
    sharing: Names


class Sum(Answer):
    """[path, sha256 of its first so many bytes; null: it has not so many]."""

    sum: tuple[Path, Digest | None]


class LogSum(Answer):
    first: Count
    end: Count
    sha256: Digest


RELEASE_STATE = Verb("release.state", Present)
RELEASE_BEGIN = Verb("release.begin", Begun, fenced=True)
RELEASE_PUT = Verb("release.put", Nothing, fenced=True)
RELEASE_COMMIT = Verb("release.commit", Changed, fenced=True)
RELEASE_ABORT = Verb("release.abort", Nothing, fenced=True)
DATA_STATE = Verb("data.state", optional(DataState))
DATA_BEGIN = Verb("data.begin", DataPlace, fenced=True)
DATA_COMMIT = Verb("data.commit", DataCommitted, fenced=True)
KEEP_BEGIN = Verb("keep.begin", Folder, fenced=True)
KEEP_PLACE = Verb("keep.place", Missing, fenced=True)
FETCH_LIST = Flow("fetch.list", Rows, Listed)
FETCH_SUMS = Flow("fetch.sums", Sum, Nothing)
FETCH_LOG_SUM = Verb("fetch.log_sum", LogSum)
