"""Frames on the one channel between both sides; control sees them as part of `wire`. Loaded by every `serve`: it
imports as little as it can, for a core that many hosts may share.

One frame is  !II header_bytes blob_bytes | header (JSON, ASCII) | blob (raw bytes).
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO, Dict, List, Optional, Tuple

VERSION = 1
GREETING = b"=tfdeploy-agent="  # this line, alone, ends whatever a login shell printed before us
MAX_HEADER_BYTES = 32 << 20
MAX_BLOB_BYTES = 64 << 20
HEARTBEAT_S = 5.0  # the control side pings this often
SILENCE_S = 30.0  # agent serve ends itself after this much silence


class WireError(Exception):
    """The bytes on the channel are not ours."""


_HEAD = struct.Struct("!II")


def encode_frame(header: Dict[str, Any], blob: bytes = b"") -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    if len(text) > MAX_HEADER_BYTES or len(blob) > MAX_BLOB_BYTES:
        raise WireError("frame too large: %d + %d bytes" % (len(text), len(blob)))
    return _HEAD.pack(len(text), len(blob)) + text + blob


def read_exactly(stream: BinaryIO, count: int) -> bytes:
    """`count` bytes, or fewer at the end of the stream."""
    parts: List[bytes] = []
    while count > 0:
        part = stream.read(count)
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_frame(stream: BinaryIO) -> Optional[Tuple[Dict[str, Any], bytes]]:
    """The next frame, or None at the end of the stream. Raises WireError on foreign bytes."""
    head = read_exactly(stream, _HEAD.size)
    if len(head) < _HEAD.size:
        return None
    header_bytes, blob_bytes = _HEAD.unpack(head)
    if header_bytes > MAX_HEADER_BYTES or blob_bytes > MAX_BLOB_BYTES:
        raise WireError("a frame of %d + %d bytes is not ours" % (header_bytes, blob_bytes))
    text = read_exactly(stream, header_bytes)
    blob = read_exactly(stream, blob_bytes)
    if len(text) < header_bytes or len(blob) < blob_bytes:
        return None
    try:
        header = json.loads(text)
    except ValueError as error:
        raise WireError("a frame that is not JSON") from error
    if not isinstance(header, dict):
        raise WireError("a frame that is not an object")
    return header, blob
