"""Define answers about files: releases, data sets, `keep` folders, and fetched files."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tfdeploy.model.answers.listing import FoundFile
from tfdeploy.model.typed import (
    AbsolutePath,
    Answer,
    Count,
    Digest,
    EmptyAnswer,
    Names,
    RelativePath,
    RelativePaths,
    ShortText,
    StreamingVerb,
    Verb,
    nullable_type,
)


class ReleasePresent(Answer):
    present: bool


class ReleaseBegun(Answer):
    """`staging`: the folder for the `missing` files. `linked`: how many files are hard links to
    files of older releases. `rsync`: whether the host has rsync."""

    staging: AbsolutePath
    missing: RelativePaths
    linked: Count
    rsync: bool


class IncompleteFiles(Answer):
    """`changed`: the files that did not arrive with the size that the manifest states. If there are
    none, the release is complete."""

    changed: RelativePaths


class DataState(Answer):
    """`digest`: Listing.digest of the present files. `attributes`: Listing.attributes_digest as the
    last sync has recorded it. `parts`: a hash of the numbers that say to which part of the data set
    each file belongs; "" if the data set is not split into parts."""

    digest: Digest
    attributes: ShortText = ""
    parts: ShortText = ""


class UploadFolder(Answer):
    """`folder`: the folder for the files that are sent."""

    folder: AbsolutePath


class DataUploadFolder(UploadFolder):
    """`files`: how many files are present. `losing`: how many of these files the sync would delete.
    Both numbers are 0 if the caller did not request them."""

    files: Count = 0
    losing: Count = 0


class DataCommitResult(Answer):
    """`digest`: Listing.digest of the present files, or "" if not all files have arrived. `ok`:
    whether the data set is complete."""

    digest: Annotated[str, Meta(max_length=128)]
    ok: bool


class MissingFiles(Answer):
    """`missing`: the files that the host lacks, or that have not arrived completely."""

    missing: RelativePaths


class FoundFiles(Answer):
    rows: Annotated[list[FoundFile], Meta(min_length=1, max_length=10_000)]


class ListedFolder(Answer):
    """`sharing`: the run's hosts that share this workdir."""

    root: AbsolutePath
    sharing: Names


class FilePrefixHash(Answer):
    """`sum`: a list [path, hash]. The hash is the sha256 of as many first bytes of the file as the
    caller requested. It is null if the file is missing, shorter, or cannot be read."""

    sum: tuple[RelativePath, Digest | None]


class LogRangeHash(Answer):
    first: Count
    end: Count
    sha256: Digest


RELEASE_STATE = Verb("release.state", ReleasePresent)
RELEASE_MISSING = Verb("release.missing", MissingFiles)
RELEASE_BEGIN = Verb("release.begin", ReleaseBegun)
RELEASE_COMMIT = Verb("release.commit", IncompleteFiles)
DATA_STATE = Verb("data.state", nullable_type(DataState))
DATA_BEGIN = Verb("data.begin", DataUploadFolder)
DATA_COMMIT = Verb("data.commit", DataCommitResult)
KEEP_BEGIN = Verb("keep.begin", UploadFolder)
KEEP_ASIDE = Verb("keep.aside", EmptyAnswer)
KEEP_PLACE = Verb("keep.place", MissingFiles)
FETCH_LIST = StreamingVerb("fetch.list", FoundFiles, ListedFolder)
FETCH_SUMS = StreamingVerb("fetch.sums", FilePrefixHash, EmptyAnswer)
FETCH_LOG_SUM = Verb("fetch.log_sum", LogRangeHash)
