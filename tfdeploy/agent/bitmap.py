"""Encode a set of numbers as a bitmap, for example the numbers of some rows in a listing, or of
some pieces in a segment of a broadcast. Each number has one bit; number 0 is the lowest bit of the
first byte.

JSON contains a bitmap as the compressed text that `pack` returns. Between hosts, a bitmap is sent
as raw bytes.
"""

from __future__ import annotations

import base64
import zlib

from tfdeploy.agent.annotations import Iterable, Iterator, Union

MOST_BYTES = 64 << 20  # limits the size of an unpacked bitmap

Bitmap = Union[bytes, bytearray]


def make_bitmap(numbers: Iterable[int], count: int) -> bytearray:
    """Return a bitmap of `count` bits, in which the bit of each number in `numbers` is set."""
    bitmap = bytearray((count + 7) // 8)
    for number in numbers:
        bitmap[number >> 3] |= 1 << (number & 7)
    return bitmap


def is_marked(bitmap: Bitmap, number: int) -> bool:
    return bool(bitmap[number >> 3] >> (number & 7) & 1)


def marked_numbers(bitmap: Bitmap) -> Iterator[int]:
    """Yield the numbers of the bits that are set, in ascending order."""
    for index, byte in enumerate(bitmap):
        while byte:
            low = byte & -byte
            yield 8 * index + low.bit_length() - 1
            byte ^= low


def pack(content: Bitmap) -> str:
    return base64.b64encode(zlib.compress(content, 1)).decode("ascii")


def unpack(text: str) -> bytes:
    """Return the bitmap from a text that `pack` has made. A bitmap longer than MOST_BYTES is cut
    off. Raises ValueError if the text is not a packed bitmap."""
    try:
        return zlib.decompressobj().decompress(base64.b64decode(text, validate=True), MOST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
