"""Encode the messages between a child (a host that receives) and its parent (the host that sends to
it). A message is a head of 13 bytes, then the content.

The child begins with one JSON line: {"broadcast": id, "stripes": number of stripes, "wants": the
stripes that it wants}. Then, for each segment, the parent sends LEAVES (the hashes of the pieces),
the child answers with WANT (the bitmap of the pieces that it lacks), and the parent sends one PIECE
message for each of these pieces.
"""

from __future__ import annotations

import struct

from tfdeploy.agent import pieces
from tfdeploy.agent.annotations import Any, Tuple

# Type of the message, number of the segment, index of the piece, length of the content in bytes.
HEAD = struct.Struct("!cIII")
LEAVES, WANT, PIECE = b"L", b"W", b"P"
# The largest content of each type of message, in bytes.
MOST = {
    LEAVES: pieces.SEGMENT * pieces.LEAF_BYTES,
    WANT: pieces.SEGMENT // 8,
    PIECE: pieces.PIECE_BYTES,
}
# The greatest length of the first line that a child (a host that receives) sends.
HELLO_BYTES = 4096


class InvalidMessage(ValueError):
    """The received bytes are not a valid message of this broadcast."""


def encode(kind: bytes, segment: int, index: int, content: bytes) -> bytes:
    return HEAD.pack(kind, segment, index, len(content)) + content


def parse_head(content: bytes) -> Tuple[bytes, int, int, int]:
    """Return the fields of the head of a message. Raises InvalidMessage if the head is invalid."""
    kind, segment, index, count = HEAD.unpack(content)
    if count > MOST.get(kind, -1):
        raise InvalidMessage("the received bytes are not a message of a broadcast")
    return kind, segment, index, count


def receive_into(channel: Any, buffer: memoryview) -> None:
    """Receive bytes until the buffer is full. Raises OSError, and EOFError if the connection ends
    first."""
    while buffer:
        count = channel.recv_into(buffer)
        if not count:
            raise EOFError("the connection ended")
        buffer = buffer[count:]


def stripes_bitmap(stripe_count: int, wanted_stripes: "frozenset[int]", segment: int) -> int:
    """Return the bitmap of the segment's pieces that belong to one of `wanted_stripes`. Stripes are
    parts of the data that may come from different hosts: piece p, counted over all segments,
    belongs to stripe p % stripe_count."""
    if stripe_count <= 1:
        return (1 << pieces.SEGMENT) - 1
    first = segment * pieces.SEGMENT
    return sum(
        1 << index
        for index in range(pieces.SEGMENT)
        if (first + index) % stripe_count in wanted_stripes
    )
