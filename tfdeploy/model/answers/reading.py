"""Convert JSON from a host to typed values. No other module does this.

A record of `agent.wire` inside an answer is checked against a type that is built from the record's
own fields, so this type and the record always have the same fields.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from tfdeploy.agent import wire
from tfdeploy.model.answers.shapes import checked_type_of
from tfdeploy.model.typed import msgspec_lock

V = TypeVar("V")
MAX_MESSAGE_CHARS = 300  # the most characters of an error message
MOST_WEIGHT_BYTES = (
    256 << 20
)  # the most memory for one answer, as estimated by estimate_memory_bytes
_VALUE_BYTES = 64  # memory of a small value in Python


class InvalidJsonValue(ValueError):
    """A JSON value does not have the type that the reader expects. The message says why."""


def convert_untrusted(value: Any, cls: type[V]) -> V:
    """Return `value` as an instance of `cls`. Raises InvalidJsonValue, and nothing else, if `value`
    does not fit."""
    try:
        with msgspec_lock:
            return msgspec.convert(value, cls, dec_hook=_decode_wire_record)
    except Exception as error:
        raise _as_invalid_value(error) from error


def decode_untrusted(text: bytes, cls: type[V]) -> V:
    """Return JSON text as an instance of `cls`, as `convert_untrusted` does, but without plain
    Python values as an intermediate step. Raises InvalidJsonValue."""
    if estimate_memory_bytes(text) > MOST_WEIGHT_BYTES:
        raise InvalidJsonValue(
            f"the value would take more than {MOST_WEIGHT_BYTES >> 20} MiB of memory"
        )
    try:
        with msgspec_lock:
            return msgspec.json.decode(text, type=cls, dec_hook=_decode_wire_record)
    except Exception as error:
        # msgspec refuses surrogate escapes, which stand for names that are not UTF-8.
        if type(error) is msgspec.DecodeError and b"\\ud" in text:
            return convert_untrusted(_parse_ascii_json(text), cls)
        raise _as_invalid_value(error) from error


def _as_invalid_value(error: Exception) -> InvalidJsonValue:
    text = (
        str(error)
        if isinstance(error, msgspec.ValidationError)
        else f"{type(error).__name__}: {error}"
    )
    return InvalidJsonValue(text[:MAX_MESSAGE_CHARS])


def estimate_memory_bytes(text: bytes) -> int:
    """Estimate how much memory the JSON needs as Python values, in bytes. A small value needs much
    more memory than its text. Commas and opening brackets are counted to estimate the number of
    values."""
    return len(text) + _VALUE_BYTES * (1 + text.count(b",") + text.count(b"[") + text.count(b"{"))


def _parse_ascii_json(text: bytes) -> Any:
    """Parse ASCII-encoded JSON and return plain Python values. Raises InvalidJsonValue."""
    try:
        return _DECODER.decode(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise _as_invalid_value(error) from error


def _refuse_json_constant(constant_name: str) -> float:
    raise ValueError(f"the number {constant_name}")


_DECODER = json.JSONDecoder(parse_constant=_refuse_json_constant)


def _decode_wire_record(cls: type[Any], fields: Any) -> Any:
    """Return an instance of `cls`, a record of agent/wire.py, with these fields. msgspec calls this
    as its decoding hook."""
    msgspec.convert(fields, checked_type_of(cls))  # type: ignore[arg-type]
    return wire.from_wire(cls, fields)
