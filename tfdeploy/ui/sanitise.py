"""Sanitise foreign text into one printable line of bounded length; nothing else does. Every text of
a program, a host or a file name passes this before it is written to a terminal.

It never raises, and nothing in its output is a control character, a bidi control or invisible.
"""

from __future__ import annotations

import re
import unicodedata

from tfdeploy.model.loglines import more_bytes
from tfdeploy.model.measures import last_state

LIMIT = 4096  # characters of a line that are worth showing
_PRINTABLE = bytes(range(0x20, 0x7F))
_PRINTABLE_LINES = _PRINTABLE + b"\n"
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI
    # OSC, DCS, SOS, PM, APC, ended
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
_BREAKS_WIDTHS = (
    frozenset(range(0xFE00, 0xFE10))
    | frozenset(range(0xE0100, 0xE01F0))
    | {0x034F, 0x115F, 0x1160, 0x3164, 0xFFA0}
)


class _Table(dict[int, str]):
    """Character code -> its replacement, computed at its first use."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if 0xD800 <= code <= 0xDFFF:
            kept = "\ufffd"
        elif unicodedata.category(char) in ("Zs", "Zl", "Zp") or char == "\n":
            kept = " "
        elif char.isprintable() and code not in _BREAKS_WIDTHS:
            kept = char
        else:
            kept = ""
        self[code] = kept
        return kept


_TABLE = _Table()


def clean(text: str | bytes, limit: int = LIMIT) -> str:
    """Return one printable line of at most `limit` characters; of a bar drawn with carriage
    returns, its last state."""
    if isinstance(text, bytes):
        seen = text if b"\r" in text else text[: 8 * limit + 8]
        text = seen.decode("utf-8", "replace")
    if text.isascii() and text.isprintable():
        return text if len(text) <= limit else _cut(text, limit)
    text = _SEQUENCE.sub("", last_state(text)[: 8 * limit])
    text = text.expandtabs(8).translate(_TABLE)
    return text if len(text) <= limit else _cut(text, limit)


def clean_line(line: str | bytes, limit: int = LIMIT) -> str:
    """Return `clean` of a line of a log; a line that is cut ends with how many of its bytes are not
    shown."""
    text = clean(line, max(8 * len(line), limit))
    return (
        text
        if len(text) <= limit
        else text[:limit] + more_bytes(len(text[limit:].encode("utf-8", "replace")))
    )


def is_plain(line: bytes) -> bool:
    """True if all is printable ASCII: `clean` would change nothing (but its length)."""
    return not line.translate(None, _PRINTABLE)


def are_plain(lines: bytes) -> bool:
    """True if `is_plain` holds for each line."""
    return not lines.translate(None, _PRINTABLE_LINES)


def _cut(text: str, limit: int) -> str:
    return text[: max(0, limit - 3)] + "..."[:limit]
