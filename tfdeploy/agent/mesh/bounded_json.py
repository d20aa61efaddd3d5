"""Parse and check JSON that another host sent. Such JSON is limited in depth and size, and its
numbers must be finite. Every error is a ValueError.

The depth is checked before the text is parsed: Python's parser is recursive, and the stack of the
thread is small, so deeply nested JSON could crash the process.
"""

from __future__ import annotations

import json
import math

from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Any,
    Callable,
    Collection,
    Mapping,
    Sequence,
    Tuple,
)

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Unchecked

MAX_DEPTH = 16
# The largest number of commas and colons in one message. A message about a thousand tasks has
# 12,000 of them.
MAX_VALUES = 1 << 17
_MAX_DIGITS = 20  # an integer with more digits is rejected
_LATEST = 253402300799.0  # the end of the year 9999, in UTC seconds
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
Check = Callable[[Any], Any]


def parse(text: bytes, most_values: int = MAX_VALUES) -> Any:
    """Return the parsed value. Raises ValueError if the text is not JSON, is nested too deeply, or
    has more than `most_values` commas and colons."""
    parts = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    # The text was split at its quotes, so the parts with even indexes are outside of string
    # literals. Commas and brackets inside of literals do not count.
    outside = b"".join(parts[::2])
    if outside.count(b",") + outside.count(b":") > most_values:
        raise ValueError("too many values")
    depth = 0
    for bracket in outside.translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
    return _DECODER.decode(text.decode("ascii"))


def _parse_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("too large a number")
    return int(digits)


def _parse_finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


_DECODER = json.JSONDecoder(
    parse_int=_parse_integer, parse_float=_parse_finite, parse_constant=_parse_finite
)


# --- checks: a check takes a value and returns it with the expected type, or raises ValueError


def number_check(least: float, most: float) -> Check:
    """Return a check for a number from `least` to `most`. The check returns a float. It returns 0.0
    for -0.0, so that equal numbers have the same JSON."""

    def check(value: Any) -> float:
        if type(value) not in (int, float) or not least <= value <= most:
            raise ValueError("not a number between %g and %g" % (least, most))
        return float(value) + 0.0

    return check


def integer_check(least: int, most: int) -> Check:
    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError("not an integer from %d to %d" % (least, most))
        return value

    return check


def choice_check(allowed: Collection[str]) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError("an unknown word")
        return value

    return check


def shortened_text_check(most_chars: int) -> Check:
    """Return a check for a string. The check accepts a string of any length, and returns at most
    its first `most_chars` characters."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("not a text")
        return value[:most_chars]

    return check


def fixed_list_check(*checks: Check) -> Check:
    """Return a check for a list that has exactly as many values as there are `checks`. Each value
    must pass the check at its position."""

    def check(value: Any) -> Tuple[Any, ...]:
        values = check_list(value)
        if len(values) != len(checks):
            raise ValueError("not %d values" % len(checks))
        return tuple(each(item) for each, item in zip(checks, values))  # noqa: B905 - Python 3.8

    return check


def check_list(value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise ValueError("not a list")
    return value


def check_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("not true or false")
    return value


_instant = number_check(-1e12, 1e12)


def clamp_time(value: Any) -> float:
    """Return a time in UTC seconds. A time outside of the years 1970 to 9999 is replaced by the
    nearest time in these years, so that a message from a host with a wrong clock is still accepted.
    """
    return float(min(max(_instant(value), 0.0), _LATEST))


def pick_checked_fields(value: Any, checks: Mapping[str, Check], needed: Tuple[str, ...]) -> Any:
    """Return the checked fields of the JSON object `value`. `checks`: field name -> check.
    `needed`: the fields that must be present. Raises ValueError.

    A field that is null counts as missing. A field without a check is left out of the result and is
    no error, because the sender may have a later version with more fields.
    """
    received = check_object(value)
    checked = {
        name: check(received[name])
        for name, check in checks.items()
        if received.get(name) is not None
    }
    missing = set(needed) - set(checked)
    if missing:
        raise ValueError("%s is missing" % ", ".join(sorted(missing)))
    return checked


def check_object(value: Any) -> Unchecked:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def check_object_keys(value: Any, names: Collection[str]) -> Unchecked:
    """Return `value` if it is a JSON object whose keys are all in `names`. Otherwise raise
    ValueError."""
    table = check_object(value)
    if not all(name in names for name in table):
        raise ValueError("a key of the object is not one of the expected names")
    return table
