"""JSON from a host to a typed value. No other place makes types of what a host sends.

A record of `agent.wire` inside an answer is checked by a shape made from its own fields, so the two
cannot differ.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from tfdeploy.agent import wire
from tfdeploy.model.answers.shapes import shape_of
from tfdeploy.model.typed import msgspec_lock

V = TypeVar("V")
MOST_WORDS = 300
MOST_WEIGHT_BYTES = 256 << 20
_VALUE_BYTES = 64


class BadShape(ValueError):
    """The JSON is not a value of the type; the message says why."""


def read(value: Any, cls: type[V]) -> V:
    """`value` as a `cls`. Raises BadShape, and nothing else, for any `value` that is none."""
    try:
        with msgspec_lock:
            return msgspec.convert(value, cls, dec_hook=_record)
    except Exception as error:
        raise _bad_shape(error) from error


def read_text(text: bytes, cls: type[V]) -> V:
    """`read` of JSON text, without plain Python values in between. Raises BadShape."""
    if weight_bytes(text) > MOST_WEIGHT_BYTES:
        raise BadShape(f"it would take more than {MOST_WEIGHT_BYTES >> 20} MiB of memory")
    try:
        with msgspec_lock:
            return msgspec.json.decode(text, type=cls, dec_hook=_record)
    except Exception as error:
        # msgspec refuses names whose bytes are not UTF-8.
        if type(error) is msgspec.DecodeError and b"\\ud" in text:
            return read(_values_of(text), cls)
        raise _bad_shape(error) from error


def _bad_shape(error: Exception) -> BadShape:
    words = (
        str(error)
        if isinstance(error, msgspec.ValidationError)
        else f"{type(error).__name__}: {error}"
    )
    return BadShape(words[:MOST_WORDS])


def weight_bytes(text: bytes) -> int:
    """About how many bytes the JSON takes as Python values. A small value takes much more than its
    text; commas and opening brackets count the values."""
    return len(text) + _VALUE_BYTES * (1 + text.count(b",") + text.count(b"[") + text.count(b"{"))


def _values_of(text: bytes) -> Any:
    """JSON in ASCII as plain values. Raises BadShape."""
    try:
        return _DECODER.decode(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise _bad_shape(error) from error


def _refuse(constant: str) -> float:
    raise ValueError(f"the number {constant}")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _record(cls: type[Any], fields: Any) -> Any:
    """A record of agent/wire.py, for msgspec."""
    msgspec.convert(fields, shape_of(cls))  # type: ignore[arg-type]
    return wire.from_wire(cls, fields)
