"""Answers about broadcasts: what a host lacks of a data set, and how far it is."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tfdeploy.model.answers.bounds import Count
from tfdeploy.model.answers.verb import Answer, Flow, Nothing, Verb

Base64 = Annotated[str, Meta(max_length=32 << 20)]
Bitmap = Annotated[str, Meta(pattern=r"^[0-9a-f]{1,64}$")]
Words = Annotated[str, Meta(max_length=1000)]


class DataLack(Answer):
    """`lacking`: base64 of zlib of a bitmap over the listing's rows. `folder_id`: the same on hosts that share the folder."""

    lacking: Base64
    lacking_bytes: Count
    folder_id: Annotated[str, Meta(max_length=64)] = ""


class Said(Answer):
    """One report of a member. `port`: it listens there (the first report); `stripes`: of `have`, what is in each stripe.
    `failed`: (parent, word, why)."""

    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    have: Count | None = None
    received: Count | None = None
    stripes: Annotated[tuple[Count, ...], Meta(max_length=64)] = ()
    failed: tuple[Words, Words, Words] | None = None


class Had(Answer):
    have: Count
    received: Count


class Wanted(Answer):
    """The pieces of a segment that the host wants from here."""

    wanted: Bitmap


DATA_LACK = Verb("data.lack", DataLack, fenced=True)
BROADCAST_JOIN = Flow("broadcast.join", Said, Had, fenced=True)
BROADCAST_FEEDS = Verb("broadcast.feeds", Nothing)
BROADCAST_ROOTS = Verb("broadcast.roots", Nothing)
BROADCAST_LEAVES = Verb("broadcast.leaves", Wanted)
BROADCAST_PUT = Verb("broadcast.put", Nothing)
