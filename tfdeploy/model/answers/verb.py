"""Define what a verb of the agent is: a name on the wire, and the types of its answer.

A caller names a verb by a Verb or StreamingVerb object, so the caller knows the type of the answer.
`transport` checks every answer against that type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
I_co = TypeVar("I_co", covariant=True)  # the type of an item


# A verb's arguments by name. docs/agent-protocol.md lists the arguments of each verb. The host
# checks each argument.
Args = Mapping[str, object]


class Answer(msgspec.Struct, kw_only=True):
    """The answer of a host. Unknown fields are ignored, because a newer agent may send more."""


class EmptyAnswer(Answer):
    """The answer of verbs that only have an effect."""


@dataclass(frozen=True)
class Verb(Generic[V_co]):
    """A verb with one answer. `value`: the type of the answer, for msgspec."""

    name: str
    value: type[V_co]


@dataclass(frozen=True)
class StreamingVerb(Generic[I_co, V_co]):
    """A verb that is answered by items, each with or without a blob, and then by a value."""

    name: str
    item: type[I_co]
    value: type[V_co]


def nullable_type(cls: type[V]) -> type[V | None]:
    """Return the type of an answer that may be null."""
    either: Any = cls | None
    nullable: type[V | None] = either
    return nullable
