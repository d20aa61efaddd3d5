"""Parse JSON that another host sent: finite numbers, bounded depth, bounded size. Raises ValueError
and nothing else.

The depth is counted before anything is parsed, because the parser recurses in C on a thread with a
small stack.
"""

from __future__ import annotations

import json
import math

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Callable, Collection, Mapping, Tuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Unchecked

MAX_DEPTH = 16
MAX_VALUES = 1 << 17  # a message of a thousand tasks has 12,000
_MAX_DIGITS = 20
_LATEST = 253402300799.0  # the end of the year 9999, in UTC seconds
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
Check = Callable[[Any], Any]


def parse(text: bytes, most_values: int = MAX_VALUES) -> Any:
    """Parse the text. Raises ValueError."""
    parts = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    outside = b"".join(parts[::2])  # of strings
    if outside.count(b",") + outside.count(b":") > most_values:
        raise ValueError("too many values")
    depth = 0
    for bracket in outside.translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
    return _DECODER.decode(text.decode("ascii"))


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("too large a number")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_finite, parse_constant=_finite)


# --- checks of one value: each returns it in one type, or raises ValueError


def number(least: float, most: float) -> Check:
    """Return a check for a float, which is never -0.0: equal values have the same JSON."""

    def check(value: Any) -> float:
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not least <= value <= most
        ):
            raise ValueError("not a number from %g to %g" % (least, most))
        return float(value) + 0.0

    return check


def integer(least: int, most: int) -> Check:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError("not an integer from %d to %d" % (least, most))
        return value

    return check


def word(allowed: Collection[str]) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError("an unknown word")
        return value

    return check


def text(most_chars: int) -> Check:
    """Return a check for a text, which truncates a longer one."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("not a text")
        return value[:most_chars]

    return check


def pair(first: Check, second: Check) -> Check:
    def check(value: Any) -> Tuple[Any, Any]:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise ValueError("not a pair")
        return first(value[0]), second(value[1])

    return check


def truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


_instant = number(-1e12, 1e12)


def time(value: Any) -> float:
    """Return UTC seconds, clamped to the years 1970 to 9999: a message with a wrong clock still
    counts."""
    return float(min(max(_instant(value), 0.0), _LATEST))


def fields(value: Any, checks: Mapping[str, Check], needed: Tuple[str, ...]) -> Any:
    """Return the checked fields of an object that `checks` names. A field with null counts as
    missing, and other fields are left out, because a later version may add fields. `needed`: the
    fields that must be present."""
    received = mapping(value)
    checked = {
        name: check(received[name])
        for name, check in checks.items()
        if received.get(name) is not None
    }
    if not set(needed) <= set(checked):
        raise ValueError("%s is missing" % ", ".join(sorted(set(needed) - set(checked))))
    return checked


def mapping(value: Any) -> Unchecked:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def table(value: Any, names: Collection[str]) -> Unchecked:
    """Return a check for an object whose keys are among `names`."""
    if not all(name in names for name in mapping(value)):
        raise ValueError("not a table of these names")
    return mapping(value)
