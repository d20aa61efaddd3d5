"""Define answers about broadcasts: which pieces of a data set a host lacks, and its progress."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tfdeploy.model.answers.bounds import Count, Port, ShortText
from tfdeploy.model.answers.verb import Answer, Flow, Nothing, Verb

Base64 = Annotated[str, Meta(max_length=32 << 20)]
Bitmap = Annotated[str, Meta(max_length=128)]  # a bitmap of the pieces of one segment, as text
Words = Annotated[str, Meta(max_length=1000)]


class DataLack(Answer):
    """`lacking`: base64 of zlib of a bitmap over the listing's rows. `folder_id`: the same on hosts
    that share the folder."""

    lacking: Base64
    lacking_bytes: Count
    folder_id: ShortText = ""


class DataHeld(Answer):
    """`held`: [part, as DataLack.lacking: those of its files that lie there], ...; 65535: of no
    part."""

    held: Annotated[
        list[tuple[Annotated[int, Meta(ge=0, le=65535)], Base64]], Meta(max_length=65536)
    ]
    folder_id: ShortText = ""


class ListingPart(Answer):
    """A part of a packed listing comes with it, as its blob. `bytes`: of all parts together."""

    bytes: Count


class Looked(Answer):
    """`stamp`: changes with any write to the data."""

    folder: bool
    stamp: ShortText


class MemberReport(Answer):
    """One report of a member. `port`: it listens there (the first report); `stripes`: of `have`,
    what is in each stripe. `failed`: (parent, word, why), word: unreached, lost, wrong, disk,
    differs."""

    port: Port | None = None
    have: Count | None = None
    received: Count | None = None
    stripes: Annotated[tuple[Count, ...], Meta(max_length=64)] = ()
    failed: tuple[Words, Words, Words] | None = None


class Had(Answer):
    have: Count
    received: Count


class Wanted(Answer):
    """The pieces of a segment that the host wants from here: a bitmap as DataLack.lacking."""

    wanted: Bitmap


class Leaves(Answer):
    """The sums of a segment's pieces on the host that is the source, in hexadecimal."""

    leaves: Annotated[str, Meta(pattern=r"^([0-9a-f]{64}){1,256}$")]


class Piece(Answer):
    """With its content as blob."""

    index: Count


DATA_LACK = Verb("data.lack", DataLack)
DATA_HELD = Verb("data.held", DataHeld)
DATA_LOOK = Flow("data.look", ListingPart, Looked)
DATA_COPY = Verb("data.copy", Nothing)
BROADCAST_OFFER = Verb("broadcast.offer", Nothing)
BROADCAST_LEND = Flow("broadcast.lend", MemberReport, Had)
BROADCAST_JOIN = Flow("broadcast.join", MemberReport, Had)
BROADCAST_FEEDS = Verb("broadcast.feeds", Nothing)
BROADCAST_ROOTS = Verb("broadcast.roots", Nothing)
BROADCAST_LEAVES = Verb("broadcast.leaves", Wanted)
BROADCAST_PUT = Verb("broadcast.put", Nothing)
BROADCAST_SUMS = Verb("broadcast.sums", Leaves)
BROADCAST_READ = Flow("broadcast.read", Piece, Nothing)
