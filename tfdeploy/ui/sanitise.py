"""Sanitise text: turn it into one printable line of bounded length.

Every text that comes from a program, a host or a file name is sanitised here before it is written
to a terminal. The functions never raise. Their output has no control characters, no bidi controls
and no invisible characters.
"""

from __future__ import annotations

import re
import unicodedata

from tfdeploy.model.loglines import format_more_bytes, last_progress_state

# The maximum number of characters of a line that are shown.
LIMIT = 4096
_PRINTABLE = bytes(range(0x20, 0x7F))
_PRINTABLE_LINES = _PRINTABLE + b"\n"
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI sequences, such as colours
    # OSC, DCS, SOS, PM and APC strings, such as window titles, with their terminators
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
# Characters that Python calls printable, but that are invisible or change the width of other
# characters.
_BREAKS_WIDTHS = (
    frozenset(range(0xFE00, 0xFE10))
    | frozenset(range(0xE0100, 0xE01F0))
    | {0x034F, 0x115F, 0x1160, 0x3164, 0xFFA0}
)


class _ReplacementTable(dict[int, str]):
    """A mapping from character codes to replacements. Each replacement is computed at the first
    lookup."""

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


_TABLE = _ReplacementTable()


def clean(text: str | bytes, max_chars: int = LIMIT) -> str:
    """Return the text as one printable line of at most `max_chars` characters. If the text is a
    progress bar drawn with carriage returns, only its last state remains."""
    if isinstance(text, bytes):
        start = text if b"\r" in text else text[: 8 * max_chars + 8]
        text = start.decode("utf-8", "replace")
    if not (text.isascii() and text.isprintable()):
        text = _SEQUENCE.sub("", last_progress_state(text)[: 8 * max_chars])
        text = text.expandtabs(8).translate(_TABLE)
    return text if len(text) <= max_chars else text[: max(0, max_chars - 3)] + "..."[:max_chars]


def clean_line(line: str | bytes, max_chars: int = LIMIT) -> str:
    """Return a line of a log as printable text, as `clean` does. If the line is cut, it ends with
    the number of bytes that are not shown."""
    text = clean(line, max(8 * len(line), max_chars))
    return (
        text
        if len(text) <= max_chars
        else text[:max_chars] + format_more_bytes(len(text[max_chars:].encode("utf-8", "replace")))
    )


def is_printable_ascii(line: bytes) -> bool:
    """Return True if the line is printable ASCII. `clean` changes such a line only by cutting it if
    it is too long."""
    return not line.translate(None, _PRINTABLE)


def are_printable_ascii(lines: bytes) -> bool:
    """Return True if each of the lines is printable ASCII."""
    return not lines.translate(None, _PRINTABLE_LINES)
