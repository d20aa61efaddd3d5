"""Remove what a terminal does not show: escape sequences, control characters, and characters of
zero width. The functions have no side effects.

ui/sanitise.py removes the same characters from a line before the line is shown.
"""

from __future__ import annotations

import bisect
import re

from tfdeploy.agent.annotations import List, Optional

_SEQUENCES = (
    rb"(?:\x1b\[|\xc2\x9b)[0-?]*[ -/]*[@-~]"  # sequences of the type CSI, such as colours
    # Sequences of the types OSC, DCS, SOS, PM and APC. The last pattern finds all other sequences.
    rb"|(?:\x1b[\]PX^_]|\xc2[\x90\x98\x9d-\x9f])[^\x07\x1b\n\xc2]*(?:\x07|\x1b\\|\xc2\x9c)"
    rb"|\x1b[ -/]*[0-~]"
)
_CHARACTERS = (
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"  # controls except tab, newline and carriage return
    rb"|\xc2[\x80-\x9f\xad]|\xcd\x8f|\xd8[\x80-\x85\x9c]|\xdb\x9d|\xdc\x8f"
    rb"|\xe0(?:\xa2[\x90\x91]|\xa3\xa2)|\xe1(?:\x85[\x9f\xa0]|\xa0\x8e)"
    rb"|\xe2(?:\x80[\x8b-\x8f\xaa-\xae]|\x81[\xa0-\xaf])|\xe3\x85\xa4"
    rb"|\xef(?:\xb8[\x80-\x8f]|\xbb\xbf|\xbe\xa0|\xbf[\xb0-\xbb\xbe\xbf]|[\x80-\xa3][\x80-\xbf])"
    rb"|\xee[\x80-\xbf][\x80-\xbf]|\xf0\x91(?:\x82\xbd|\x83\x8d)|\xf0\x93\x90[\xb0-\xbf]"
    rb"|\xf0\x9b\xb2[\xa0-\xa3]|\xf0\x9d\x85[\xb3-\xba]"
    rb"|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
_INVISIBLE = re.compile(_SEQUENCES + _CHARACTERS)
# An incomplete escape sequence or character at the end of the text. The next bytes may complete it.
_INCOMPLETE = re.compile(
    rb"(?:\x1b\[[0-?]*[ -/]*|\x1b[\]PX^_][^\x07\x1b\n]*\x1b?|\x1b[ -/]*|\xc2\x9b[0-?]*[ -/]*"
    rb"|[\xc2\xcd\xd8\xdb\xdc]|[\xe0-\xe3\xee\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)
_PLAIN = bytes(range(0x20, 0x7F)) + b"\t\n\r"
MOST_INCOMPLETE = 4096  # an incomplete sequence has at most this many bytes


def strip_invisible(text: bytes) -> bytes:
    """Return only those bytes of the text that a terminal shows."""
    return _INVISIBLE.sub(b"", text)


class VisibleText:
    """The part of `whole[:stop]` that a terminal shows. `text` contains this part. The methods
    convert positions in `text` to positions in `whole`."""

    def __init__(self, whole: bytes, stop: int) -> None:
        self._size = len(whole)
        # For each visible piece of `whole`: the position in `text` at which it begins.
        self._begins: List[int] = []
        # For each visible piece: its position in `whole` minus its position in `text`.
        self._shifts: List[int] = []
        pieces, at, length = [], 0, 0
        spans = [match.span() for match in _INVISIBLE.finditer(whole, 0, stop)]
        for begin, end in spans + [(stop, stop)]:
            if begin > at:
                pieces.append(whole[at:begin])
                self._begins.append(length)
                self._shifts.append(at - length)
                length += begin - at
            at = end
        self.text = b"".join(pieces)

    def original_start(self, position: int) -> int:
        """Return the position in `whole` of the byte `text[position]`. If `position` is the end of
        `text`, return the end of `whole`."""
        return position + self._shift_at(position) if position < len(self.text) else self._size

    def original_end(self, end: int) -> int:
        """Return the position in `whole` directly after the byte `text[end - 1]`. `end` must be
        greater than 0."""
        return end + self._shift_at(end - 1)

    def _shift_at(self, position: int) -> int:
        return self._shifts[bisect.bisect_right(self._begins, position) - 1]


def strip_invisible_bytes(whole: bytes) -> Optional[VisibleText]:
    """Return the visible part of the bytes, or None if a terminal shows all of them.

    An incomplete escape sequence at the end counts as invisible, because the next bytes may
    complete it.
    """
    if not whole.translate(None, _PLAIN):
        return None
    match = _INCOMPLETE.search(whole, max(0, len(whole) - MOST_INCOMPLETE))
    if match is None and _INVISIBLE.search(whole) is None:
        return None
    return VisibleText(whole, match.start() if match else len(whole))
