"""Parse and write JSON with C functions of the interpreter. The package `json` would also load `re`
and `enum`, which takes a third of the time to start a session of the agent.

Results and errors are the same as those of the package `json`, which is used if the interpreter
does not have these C functions.
"""

from __future__ import annotations

import sys

from tfdeploy.agent.annotations import Any, Union

# The stack size of each thread that parses JSON. The usual 8 MiB would use too much memory if there
# are many threads. But 1 MiB is too small for Python 3.12 and 3.13: their parsers accept JSON that
# is nested so deeply that the stack overflows and the process dies of SIGSEGV.
THREAD_STACK_BYTES = (4 if sys.version_info >= (3, 12) else 1) << 20
_BLANKS = " \t\n\r"


class _ScannerSettings:
    """The settings that the C scanner reads. They are the same as in json.JSONDecoder()."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = {
        "NaN": float("nan"),
        "Infinity": float("inf"),
        "-Infinity": float("-inf"),
    }.__getitem__


_scan: Any = None
_encoder: Any = None
try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    _scan, _encoder = make_scanner(_ScannerSettings), make_encoder  # type: ignore[arg-type]
except (ImportError, TypeError):
    import json


def loads(text: Union[str, bytes]) -> Any:
    """Return the value of a JSON text. Bytes are decoded as UTF-8. Raises ValueError."""
    if _scan is None:
        return json.loads(text)
    if not isinstance(text, str):
        text = text.decode("utf-8", "surrogatepass")
    text = text.strip(_BLANKS)
    try:
        value, end = _scan(text, 0)
    except StopIteration as error:
        raise ValueError("no JSON value at %s" % error.value) from None
    if end != len(text):
        raise ValueError("more than one JSON value")
    return value


def encode(value: Any) -> bytes:
    """Return the value as JSON: ASCII without blanks. Raises TypeError, ValueError."""
    if _encoder is None:
        return json.dumps(value, separators=(",", ":")).encode("ascii")
    to_chunks = _encoder(
        {}, _raise_not_serializable, encode_basestring_ascii, None, ":", ",", False, False, True
    )
    return "".join(to_chunks(value, 0)).encode("ascii")


def _raise_not_serializable(value: object) -> None:
    raise TypeError("Object of type %s is not JSON serializable" % type(value).__name__)
