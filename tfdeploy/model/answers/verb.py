"""A question to the agent of a host: its name on the wire, and the types of what is answered.

A call site names one of these values and so knows the type of its answer; `transport` checks every answer against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
I_co = TypeVar("I_co", covariant=True)  # an item


Args = Mapping[str, object]  # of a verb, by name: docs/agent-protocol.md. The host checks each of them


class Answer(msgspec.Struct, kw_only=True):
    """What a host says. Unknown fields are ignored: a newer agent may say more."""


class Nothing(Answer):
    """Of verbs that only have an effect."""


@dataclass(frozen=True)
class Verb(Generic[V_co]):
    """Answered once. `value` is the type of the answer, as msgspec understands types. `fenced`: it goes with the number of the
    job's lock, and is refused once another operator has taken that."""

    name: str
    value: type[V_co]
    fenced: bool = False


@dataclass(frozen=True)
class Flow(Generic[I_co, V_co]):
    """Answered by items, each perhaps with a blob, and then by a value."""

    name: str
    item: type[I_co]
    value: type[V_co]
    fenced: bool = False


def optional(cls: type[V]) -> type[V | None]:
    """The type of an answer that may be null."""
    either: Any = cls | None
    found: type[V | None] = either
    return found
