"""Define answers about files: releases, data sets, `keep` folders, and fetched files."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tfdeploy.model.answers.bounds import (
    AbsolutePath,
    Count,
    Digest,
    Names,
    RelativePath,
    RelativePaths,
    ShortText,
)
from tfdeploy.model.answers.listing import FoundFile
from tfdeploy.model.answers.verb import Answer, Flow, Nothing, Verb, optional


class Present(Answer):
    present: bool


class ReleaseBegun(Answer):
    """`staging`: where the `missing` files go. `linked`: files that older releases lent. `rsync`:
    whether the host has it."""

    staging: AbsolutePath
    missing: RelativePaths
    linked: Count
    rsync: bool


class Changed(Answer):
    """`changed`: files whose content is not the manifest's; none: the release is there."""

    """Files that did not arrive as files of their size."""

    changed: RelativePaths


class DataState(Answer):
    """`digest`: Listing.digest of what lies there. `attributes`: Listing.attributes_digest as the last
    sync recorded it. `parts`: names which file is in which part; "": no parts."""

    digest: Digest
    attributes: ShortText = ""
    parts: ShortText = ""


class Folder(Answer):
    """Where rsync puts what is sent."""

    folder: AbsolutePath


class DataPlace(Folder):
    """`files`: how many lie there. `losing`: how many of them the sync would delete. Both 0 where
    that was not asked."""

    files: Count = 0
    losing: Count = 0


class DataCommitted(Answer):
    """`digest`: of what lies there; "": not all of it has come."""

    digest: Annotated[str, Meta(max_length=128)]
    ok: bool


class Missing(Answer):
    """Files that the host lacks, or that did not arrive whole."""

    missing: RelativePaths


class Rows(Answer):
    rows: Annotated[list[FoundFile], Meta(min_length=1, max_length=10_000)]


class Listed(Answer):
    """`sharing`: the run's hosts that have this very workdir, on a shared disk."""

    root: AbsolutePath
    sharing: Names


class Sum(Answer):
    """`sum`: [path, sha256 of as many first bytes as were asked for; null: the file is shorter]."""

    sum: tuple[RelativePath, Digest | None]


class LogSum(Answer):
    first: Count
    end: Count
    sha256: Digest


RELEASE_STATE = Verb("release.state", Present)
RELEASE_MISSING = Verb("release.missing", Missing)
RELEASE_BEGIN = Verb("release.begin", ReleaseBegun)
RELEASE_COMMIT = Verb("release.commit", Changed)
DATA_STATE = Verb("data.state", optional(DataState))
DATA_BEGIN = Verb("data.begin", DataPlace)
DATA_COMMIT = Verb("data.commit", DataCommitted)
KEEP_BEGIN = Verb("keep.begin", Folder)
KEEP_ASIDE = Verb("keep.aside", Nothing)
KEEP_PLACE = Verb("keep.place", Missing)
FETCH_LIST = Flow("fetch.list", Rows, Listed)
FETCH_SUMS = Flow("fetch.sums", Sum, Nothing)
FETCH_LOG_SUM = Verb("fetch.log_sum", LogSum)
