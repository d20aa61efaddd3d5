"""Define answers about broadcasts: which pieces of a data set a host lacks, and its progress."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tfdeploy.model.typed import Answer, Count, EmptyAnswer, Port, ShortText, StreamingVerb, Verb

Base64 = Annotated[str, Meta(max_length=32 << 20)]
Bitmap = Annotated[str, Meta(max_length=128)]  # a bitmap of the pieces of one segment, as text
Words = Annotated[str, Meta(max_length=1000)]


class MissingDataFiles(Answer):
    """`lacking`: a bitmap of the listing's rows whose files the host lacks, as base64 of zlib.
    `folder_id`: an id that is equal on all hosts that share the folder."""

    lacking: Base64
    lacking_bytes: Count
    folder_id: ShortText = ""


class PresentDataFiles(Answer):
    """`held`: [number of a part, bitmap of the part's files that the host has, packed as in
    MissingDataFiles], ...; the number 65535 stands for files of no part."""

    held: Annotated[
        list[tuple[Annotated[int, Meta(ge=0, le=65535)], Base64]], Meta(max_length=65536)
    ]
    folder_id: ShortText = ""


class ListingPart(Answer):
    """One item of an answer that consists of several items. The blob of each item is a part of a
    packed listing. `bytes`: the size of all parts together."""

    bytes: Count


class DataSourceState(Answer):
    """`folder`: whether the path is a folder. `stamp`: a text that any write to the data
    changes."""

    folder: bool
    stamp: ShortText


class BroadcastMemberReport(Answer):
    """One report of a member. `port`: the port at which it listens (only in the first report).
    `have`: bytes that it has. `received`: bytes that it has received. `stripes`: the bytes of
    `have` in each stripe. `failed`: (parent, kind of failure, reason); the kinds are unreached,
    lost, wrong, disk and differs."""

    port: Port | None = None
    have: Count | None = None
    received: Count | None = None
    stripes: Annotated[tuple[Count, ...], Meta(max_length=64)] = ()
    failed: tuple[Words, Words, Words] | None = None


class ReceivedBytes(Answer):
    """`have`: bytes that the member has. `received`: bytes that it has received."""

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
