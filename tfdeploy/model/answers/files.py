"""Define answers about files: releases, data sets, `keep` folders, fetched files, and broadcasts
(which pieces of a data set a host lacks, and its progress). Check the files that a host lists in
one of its folders (paths, sizes, times) before they are used.

A path that could lead out of the folder to which it is copied is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, NamedTuple

from msgspec import Meta

from tfdeploy.text.typed import (
    AbsolutePath,
    Answer,
    BigCount,
    Count,
    Digest,
    EmptyAnswer,
    Names,
    Port,
    RelativePath,
    RelativePaths,
    ShortText,
    StreamingVerb,
    Text,
    Verb,
    is_safe_relative_path,
    nullable_type,
)

MOST_FILES = 1_000_000  # the most files in one listing
CHECKPOINT_RECORD = "checkpoint"  # TensorFlow's own file that names the newest checkpoint


class FoundFile(NamedTuple):
    """One file, or one link (`target`), as the host sends it: [path, size, mtime_ns, target or
    null].

    `path` has the same form as in manifest.ManifestEntry. `mtime_ns` is a time of the host's clock.
    """

    path: Text
    size: BigCount
    mtime_ns: BigCount
    target: Text | None = None

    @property
    def is_checkpoint_record(self) -> bool:
        return self.path.rpartition("/")[2] == CHECKPOINT_RECORD


def validate_listing(files: Iterable[FoundFile]) -> tuple[FoundFile, ...]:
    """Return the files sorted by path. Raises ValueError if the files cannot exist together in one
    folder."""
    files_by_path: dict[str, FoundFile] = {}
    for file in files:
        if not is_safe_relative_path(file.path):
            raise ValueError(f"the path {file.path!r:.200} leads out of the folder")
        if file.path in files_by_path:
            raise ValueError(f"{file.path!r} occurs twice")
        files_by_path[file.path] = file
        if len(files_by_path) > MOST_FILES:
            raise ValueError(f"more than {MOST_FILES} files")
    # In this order a path comes directly before the paths below it.
    paths = sorted(files_by_path, key=lambda path: path.replace("/", "\0"))
    for path, following in pairwise(paths):
        if following.startswith(path + "/"):
            raise ValueError(f"{following!r} is below {path!r}, which is not a folder")
    return tuple(files_by_path[path] for path in sorted(files_by_path))


def link_stays_inside(link: FoundFile) -> bool:
    """True if the link's target is in the same tree. Only the target's text is checked. `..` may
    occur only at the beginning of the target, and at most as often as the tree has folders above
    the link."""
    remainder, ups = link.target or "", 0
    while remainder.startswith("../"):
        remainder, ups = remainder[3:], ups + 1
    return ups <= link.path.count("/") and is_safe_relative_path(remainder)


def newest_mtimes_ns(listed_files: Iterable[FoundFile]) -> tuple[int, int]:
    """Return (mtime_ns of the newest `checkpoint` record, mtime_ns of the newest file), each 0 if
    there is no such file. Of two folders, the one with the greater pair is newer."""
    files = [file for file in listed_files if file.target is None]
    records = [file.mtime_ns for file in files if file.is_checkpoint_record]
    return max(records, default=0), max((file.mtime_ns for file in files), default=0)


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
    """`digest`: a hash of the present files, see Listing.digest in agent/listing.py. `attributes`:
    a hash of the files' attributes that the last sync recorded, see Listing.attributes_digest.
    `parts`: a hash of the numbers that say to which part of the data set each file belongs; "" if
    the data set is not split into parts."""

    digest: Digest
    attributes: ShortText = ""
    parts: ShortText = ""


class UploadFolder(Answer):
    """`folder`: the folder for the files that are sent."""

    folder: AbsolutePath


class FilesToRemove(Answer):
    """`files`: how many files the data set has now. `losing`: how many of these files a sync would
    delete. Both are 0 if the data set would not change."""

    files: Count = 0
    losing: Count = 0


class DataCommitResult(Answer):
    """`digest`: a hash of the present files (Listing.digest in agent/listing.py), or "" if not all
    files have arrived. `ok`: whether the data set is complete."""

    digest: Annotated[str, Meta(max_length=128)]
    ok: bool


class MissingFiles(Answer):
    """`missing`: the files that the host lacks, or that have not arrived completely."""

    missing: RelativePaths


class FoundFiles(Answer):
    rows: Annotated[list[FoundFile], Meta(min_length=1, max_length=10_000)]


class ListedFolder(Answer):
    """A folder whose files are listed. `sharing`: the run's hosts that share this workdir."""

    root: AbsolutePath
    sharing: Names


class FilePrefixHash(Answer):
    """`sum`: a list [path, hash]. The hash is the sha256 of the file's first bytes, as many as the
    caller requested. The hash is null if the file is missing, cannot be read, or has fewer
    bytes."""

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
DATA_LOSING = Verb("data.losing", FilesToRemove)
DATA_COMMIT = Verb("data.commit", DataCommitResult)
KEEP_BEGIN = Verb("keep.begin", UploadFolder)
KEEP_ASIDE = Verb("keep.aside", EmptyAnswer)
KEEP_PLACE = Verb("keep.place", MissingFiles)
FETCH_LIST = StreamingVerb("fetch.list", FoundFiles, ListedFolder)
FETCH_SUMS = StreamingVerb("fetch.sums", FilePrefixHash, EmptyAnswer)
FETCH_LOG_SUM = Verb("fetch.log_sum", LogRangeHash)


Base64 = Annotated[str, Meta(max_length=32 << 20)]
Bitmap = Annotated[str, Meta(max_length=128)]  # a bitmap of the pieces of one segment, as text
Words = Annotated[str, Meta(max_length=1000)]


class MissingDataFiles(Answer):
    """`lacking`: a bitmap with one bit for each row of the listing, set if the host lacks the row's
    file; compressed by zlib, as base64. `staged`: such a bitmap of the files that have arrived
    completely in the folder `staging`. `present`: the folder with the present version of the data
    set; null if there is none. `folder_id`: an id that is equal on all hosts that share the
    folder."""

    lacking: Base64
    lacking_bytes: Count
    staging: AbsolutePath
    staged: Base64
    present: AbsolutePath | None = None
    folder_id: ShortText = ""


class PresentDataFiles(Answer):
    """`held`: for each part of the data set, [number of the part, bitmap of the part's files that
    the host has]. The bitmap is packed as in MissingDataFiles. The number 65535 stands for the
    files that belong to no part."""

    held: Annotated[
        list[tuple[Annotated[int, Meta(ge=0, le=65535)], Base64]], Meta(max_length=65536)
    ]
    folder_id: ShortText = ""


class ListingPart(Answer):
    """One item of an answer that consists of several items. The blob of each item is a part of a
    packed listing. `bytes`: the size of all parts together."""

    bytes: Count


class DataSourceState(Answer):
    """`folder`: whether the path is a folder. `stamp`: a text that changes with every write to the
    data."""

    folder: bool
    stamp: ShortText


class BroadcastMemberReport(Answer):
    """One report of a host that takes part in a broadcast. `port`: the port at which the host
    listens (only in the first report). `have`: how many bytes of the data the host has. `received`:
    how many bytes have come over the network, including bytes that the host had already. `stripes`:
    the bytes of `have` in each stripe. `failed`: (parent, kind of failure, reason); the kinds are
    unreached, lost, wrong, disk and differs."""

    port: Port | None = None
    have: Count | None = None
    received: Count | None = None
    stripes: Annotated[tuple[Count, ...], Meta(max_length=64)] = ()
    failed: tuple[Words, Words, Words] | None = None


class ReceivedBytes(Answer):
    """`have`, `received`: as in BroadcastMemberReport."""

    have: Count
    received: Count


class WantedPieces(Answer):
    """`wanted`: a bitmap of the segment's pieces that the control machine has to send, packed as in
    MissingDataFiles."""

    wanted: Bitmap


class SegmentHashes(Answer):
    """`leaves`: the hashes of a segment's pieces on the host that is the source, in hexadecimal."""

    leaves: Annotated[str, Meta(pattern=r"^([0-9a-f]{64}){1,256}$")]


class BroadcastPiece(Answer):
    """One piece of the files of a broadcast, as an item of an answer. The item's blob has the bytes
    of the piece."""

    index: Count


DATA_LACK = Verb("data.lack", MissingDataFiles)
DATA_HELD = Verb("data.held", PresentDataFiles)
DATA_LOOK = StreamingVerb("data.look", ListingPart, DataSourceState)
DATA_COPY = Verb("data.copy", EmptyAnswer)
BROADCAST_OFFER = Verb("broadcast.offer", EmptyAnswer)
BROADCAST_LEND = StreamingVerb("broadcast.lend", BroadcastMemberReport, ReceivedBytes)
BROADCAST_JOIN = StreamingVerb("broadcast.join", BroadcastMemberReport, ReceivedBytes)
BROADCAST_FEEDS = Verb("broadcast.feeds", EmptyAnswer)
BROADCAST_ROOTS = Verb("broadcast.roots", EmptyAnswer)
BROADCAST_LEAVES = Verb("broadcast.leaves", WantedPieces)
BROADCAST_PUT = Verb("broadcast.put", EmptyAnswer)
BROADCAST_SUMS = Verb("broadcast.sums", SegmentHashes)
BROADCAST_READ = StreamingVerb("broadcast.read", BroadcastPiece, EmptyAnswer)
