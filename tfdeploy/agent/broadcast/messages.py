"""Encode the messages between a child and its parent: a head of 13 bytes, then the content.

The child begins with one JSON line: {"broadcast": id, "stripes": number of stripes, "wants": the
stripes that it wants}. Then the parent sends LEAVES (the leaves of a segment), the child answers
with WANT (the bitmap of the segment's pieces that it lacks), and the parent sends a PIECE for each.
"""

from __future__ import annotations

import struct

from tfdeploy.agent import pieces
from tfdeploy.agent.annotations import Any, Tuple

HEAD = struct.Struct("!cIII")  # type, segment, index, bytes of content
LEAVES, WANT, PIECE = b"L", b"W", b"P"
# Limits the content of each type, in bytes.
MOST = {
    LEAVES: pieces.SEGMENT * pieces.LEAF_BYTES,
    WANT: pieces.SEGMENT // 8,
    PIECE: pieces.PIECE_BYTES,
}
HELLO_BYTES = 4096  # limits the child's first line


class NotOurs(ValueError):
    """The received bytes are not a valid message of this broadcast."""


def head(kind: bytes, segment: int, index: int, count: int) -> bytes:
    return HEAD.pack(kind, segment, index, count)


def want(segment: int, bitmap: int) -> bytes:
    content = pieces.bitmap_bytes(bitmap)
    return head(WANT, segment, 0, len(content)) + content


def read_head(content: bytes) -> Tuple[bytes, int, int, int]:
    """Return the fields of a head. Raises NotOurs."""
    kind, segment, index, count = HEAD.unpack(content)
    if count > MOST.get(kind, -1):
        raise NotOurs("no message of a broadcast")
    return kind, segment, index, count


def receive_into(channel: Any, buffer: memoryview) -> None:
    """Fill the buffer. Raises OSError; EOFError if the connection ends first."""
    at = 0
    while at < len(buffer):
        count = channel.recv_into(buffer[at:])
        if not count:
            raise EOFError("the connection ended")
        at += count


def in_stripes(stripes: int, wanted: "frozenset[int]", segment: int) -> int:
    """Return the bitmap of the segment's pieces that are in the `wanted` stripes. Piece number p,
    counted over all segments, is in stripe p % stripes."""
    if stripes <= 1:
        return (1 << pieces.SEGMENT) - 1
    first = segment * pieces.SEGMENT
    return sum(1 << index for index in range(pieces.SEGMENT) if (first + index) % stripes in wanted)
