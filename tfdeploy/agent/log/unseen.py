"""What a terminal does not show of a text: escape sequences, control characters, characters without a shape.

Pure. ui/sanitise.py takes the same out of a line before it shows it.
"""

from __future__ import annotations

import bisect
import re

from tfdeploy.agent.annotations import List, Optional

_SEQUENCES = (
    rb"(?:\x1b\[|\xc2\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours
    rb"|(?:\x1b[\]PX^_]|\xc2[\x90\x98\x9d-\x9f])[^\x07\x1b\n\xc2]*(?:\x07|\x1b\\|\xc2\x9c)"  # OSC, DCS, SOS, PM, APC
    rb"|\x1b[ -/]*[0-~]"
)
_CHARACTERS = (
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"  # but for tab, newline and carriage return
    rb"|\xc2[\x80-\x9f\xad]|\xcd\x8f|\xd8[\x80-\x85\x9c]|\xdb\x9d|\xdc\x8f"
    rb"|\xe0(?:\xa2[\x90\x91]|\xa3\xa2)|\xe1(?:\x85[\x9f\xa0]|\xa0\x8e)"
    rb"|\xe2(?:\x80[\x8b-\x8f\xaa-\xae]|\x81[\xa0-\xaf])|\xe3\x85\xa4"
    rb"|\xef(?:\xb8[\x80-\x8f]|\xbb\xbf|\xbe\xa0|\xbf[\xb0-\xbb\xbe\xbf]|[\x80-\xa3][\x80-\xbf])|\xee[\x80-\xbf][\x80-\xbf]"
    rb"|\xf0\x91(?:\x82\xbd|\x83\x8d)|\xf0\x93\x90[\xb0-\xbf]|\xf0\x9b\xb2[\xa0-\xa3]|\xf0\x9d\x85[\xb3-\xba]|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
_UNSEEN = re.compile(_SEQUENCES + _CHARACTERS)
_BEGUN = re.compile(
    rb"(?:\x1b\[[0-?]*[ -/]*|\x1b[\]PX^_][^\x07\x1b\n]*\x1b?|\x1b[ -/]*|\xc2\x9b[0-?]*[ -/]*"
    rb"|[\xc2\xcd\xd8\xdb\xdc]|[\xe0-\xe3\xee\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)
_PLAIN = bytes(range(0x20, 0x7F)) + b"\t\n\r"
MOST_BEGUN = 4096  # bytes of a sequence that has not ended yet


def without(text: bytes) -> bytes:
    return _UNSEEN.sub(b"", text)


class Seen:
    """What is seen of some bytes up to `stop`, and where in them that stands."""

    def __init__(self, whole: bytes, stop: int) -> None:
        self._size = len(whole)
        self._begins: List[int] = []  # in `text`, of each piece that is seen
        self._shifts: List[int] = []  # by how much that piece stands later in `whole`
        pieces, at, length = [], 0, 0
        for begin, end in [found.span() for found in _UNSEEN.finditer(whole, 0, stop)] + [(stop, stop)]:
            if begin > at:
                pieces.append(whole[at:begin])
                self._begins.append(length)
                self._shifts.append(at - length)
                length += begin - at
            at = end
        self.text = b"".join(pieces)

    def begin(self, place: int) -> int:
        """Where the byte `place` of `text` stands in the whole; the whole's end for the end of `text`."""
        return place + self._shift(place) if place < len(self.text) else self._size

    def end(self, place: int) -> int:
        """Behind the byte before `place`, which is more than 0."""
        return place + self._shift(place - 1)

    def _shift(self, place: int) -> int:
        return self._shifts[bisect.bisect_right(self._begins, place) - 1]


def view(whole: bytes) -> Optional[Seen]:
    """What is seen of the bytes; None: all of them. What at their end may become unseen with the next bytes counts as unseen."""
    if not whole.translate(None, _PLAIN):
        return None
    found = _BEGUN.search(whole, max(0, len(whole) - MOST_BEGUN))
    if found is None and _UNSEEN.search(whole) is None:
        return None
    return Seen(whole, found.start() if found else len(whole))
