"""JSON of a host as the value that was asked for. The one place where what a host says becomes a type.

A record of `agent.wire` inside an answer is checked by a shape made from its own fields, so that the two cannot drift.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from tfdeploy.agent import wire
from tfdeploy.model.answers.shapes import shape_of
from tfdeploy.model.typed import one_at_a_time

V = TypeVar("V")
MOST_WORDS = 300
MOST_WEIGHT_BYTES = 256 << 20
_VALUE_BYTES = 64


class BadShape(ValueError):
    """What was said is no such value; why, in words."""


def read(value: Any, cls: type[V]) -> V:
    """Raises BadShape, whatever `value` is."""
    try:
        with one_at_a_time:
            return msgspec.convert(value, cls, dec_hook=_record)
    except Exception as error:
        words = str(error) if isinstance(error, msgspec.ValidationError) else f"{type(error).__name__}: {error}"
        raise BadShape(words[:MOST_WORDS]) from error


def read_text(text: bytes, cls: type[V]) -> V:
    """`read` of JSON that is still text: nothing but the value is made of it. Raises BadShape."""
    try:
        with one_at_a_time:
            return msgspec.json.decode(text, type=cls, dec_hook=_record)
    except Exception as error:
        if type(error) is msgspec.DecodeError and names_bytes(text):
            return read(values_of(text), cls)
        words = str(error) if isinstance(error, msgspec.ValidationError) else f"{type(error).__name__}: {error}"
        raise BadShape(words[:MOST_WORDS]) from error


def names_bytes(text: bytes) -> bool:
    """Whether it may hold names whose bytes are not UTF-8, which msgspec does not know, and is light enough for `values_of`."""
    return b"\\ud" in text and weight_bytes(text) <= MOST_WEIGHT_BYTES


def weight_bytes(text: bytes) -> int:
    """About what JSON takes as Python's values. A small one takes much more than its text: each has a comma, or opens a list
    or an object."""
    return len(text) + _VALUE_BYTES * (1 + text.count(b",") + text.count(b"[") + text.count(b"{"))


def values_of(text: bytes) -> Any:
    """JSON in ASCII as plain values. Raises BadShape."""
    try:
        return _DECODER.decode(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise BadShape(f"{type(error).__name__}: {error}"[:MOST_WORDS]) from error


def _refuse(word: str) -> float:
    raise ValueError(f"the number {word}")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _record(cls: type[Any], fields: Any) -> Any:
    """A record of agent/wire.py, for msgspec."""
    msgspec.convert(fields, shape_of(cls))  # type: ignore[arg-type]
    return wire.from_wire(cls, fields)
