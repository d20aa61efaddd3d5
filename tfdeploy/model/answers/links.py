"""Define the answers of hosts about the links between them, which `tfdeploy check` requests."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tfdeploy.model.answers.bounds import Count, Line, Port, Text
from tfdeploy.model.answers.verb import Answer, Flow, Nothing, Verb

Why = Literal[
    "refused",
    "silent",
    "no_route",
    "forbidden",
    "reset",
    "busy",
    "loopback",
    "unresolved",
    "other",
    "mute",
    "error",
]
Amount = Annotated[float, Meta(ge=0, le=1e9)]


class Listening(Answer):
    """`ports`: on which the host listens. `taken`: port -> why it does not listen there."""

    ports: Annotated[list[Port], Meta(max_length=64)]
    taken: Annotated[dict[Line, Line], Meta(max_length=64)]


class Knocked(Answer):
    """`failed`: [place among the links that were asked for, why, detail]. silent: no answer.
    forbidden: by its own firewall. busy: no room for the connection here. loopback: the name is
    this host itself. other: another token. mute: connects, no token."""

    asked: Count
    failed: Annotated[list[tuple[Count, Why, Line]], Meta(max_length=20_000)]


class Measured(Answer):
    """null: it could not be measured, and `why` says so."""

    ms: Amount | None
    to_mbit_s: Amount | None
    from_mbit_s: Amount | None
    why: Text


CHECK_LISTEN = Flow("check.listen", Listening, Nothing)
CHECK_KNOCK = Verb("check.knock", Knocked)
CHECK_MEASURE = Verb("check.measure", Measured)
