"""Define the answers of hosts about the links between them, which `tfdeploy check` requests."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tfdeploy.model.typed import Answer, Count, EmptyAnswer, Line, Port, StreamingVerb, Text, Verb

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


class ListeningPorts(Answer):
    """`ports`: the ports on which the host listens. `taken`: port -> why it does not listen
    there."""

    ports: Annotated[list[Port], Meta(max_length=64)]
    taken: Annotated[dict[Line, Line], Meta(max_length=64)]


class TriedLinks(Answer):
    """`asked`: how many links were tried. `failed`: [index of the link in the request, why, detail]
    of each link that does not work. The values of `why` are silent (no answer), forbidden (a
    firewall of this host forbids the link), busy (this host cannot open a further connection),
    loopback (the name resolves to this host itself), other (another token was received) and mute
    (no token was received)."""

    asked: Count
    failed: Annotated[list[tuple[Count, Why, Line]], Meta(max_length=20_000)]


class LinkMeasurement(Answer):
    """The numbers are null if the measurement failed; `why` then says why."""

    ms: Amount | None
    to_mbit_s: Amount | None
    from_mbit_s: Amount | None
    why: Text


CHECK_LISTEN = StreamingVerb("check.listen", ListeningPorts, EmptyAnswer)
CHECK_KNOCK = Verb("check.knock", TriedLinks)
CHECK_MEASURE = Verb("check.measure", LinkMeasurement)
