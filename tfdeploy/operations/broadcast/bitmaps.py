"""Bitmaps over the rows of a listing, as hosts send them: the first row is the lowest bit of the first byte."""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Collection, Iterable, Iterator

from tfdeploy.agent.listing import Listing
from tfdeploy.errors import BadAnswer

MOST_BYTES = 64 << 20


class RowSet(Collection[int]):
    """Some rows of a listing of so many: a byte each, where a set of a million takes 100 MB."""

    def __init__(self, rows: Iterable[int], of: int) -> None:
        self._marks = bytearray(of)
        for row in rows:
            self._marks[row] = 1

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and bool(self._marks[row])

    def __iter__(self) -> Iterator[int]:
        return (row for row, mark in enumerate(self._marks) if mark)

    def __len__(self) -> int:
        return sum(self._marks)


def rows_of(packed: str, rows: Listing, host: str) -> array[int]:
    """The rows that it names: files with content. Raises BadAnswer."""
    bitmap = unpacked(packed, host)
    if len(bitmap) != (len(rows) + 7) // 8:
        raise BadAnswer("what it says of its files is no bitmap of the listing", where=host)
    found = array("I", _bits(bitmap))
    if any(row >= len(rows) or not rows.is_content(row) for row in found):
        raise BadAnswer("what it says of its files names rows that are no files", where=host)
    return found


def numbers_of(packed: str, count: int, host: str) -> array[int]:
    """So many numbers of two bytes, low byte first. Raises BadAnswer."""
    content = unpacked(packed, host)
    if len(content) != 2 * count:
        raise BadAnswer("what it says of its parts does not fit its files", where=host)
    return array("H", (content[at] | content[at + 1] << 8 for at in range(0, len(content), 2)))


def unpacked(packed: str, host: str) -> bytes:
    """Raises BadAnswer."""
    try:
        return zlib.decompressobj().decompress(base64.b64decode(packed, validate=True), MOST_BYTES)
    except (ValueError, zlib.error) as error:
        raise BadAnswer(f"what it says of its files is no bitmap: {error}", where=host) from error


def packed(bitmap: bytes) -> str:
    return base64.b64encode(zlib.compress(bitmap, 1)).decode("ascii")


def _bits(bitmap: bytes) -> Iterator[int]:
    return (8 * place + bit for place, byte in enumerate(bitmap) if byte for bit in range(8) if byte >> bit & 1)
