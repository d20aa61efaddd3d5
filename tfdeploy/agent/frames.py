"""Encode and decode the frames on the channel between the control machine and the agent's `serve`
process on a host. Every `serve` process loads this module, and many such processes may share a CPU
core, so the module imports as little as possible.

A frame has three parts: the lengths of the other two in bytes (struct format !II), the header (JSON
in ASCII), and the blob (raw bytes). If the header is too long, the value of its key `args`, `value`
or `item` is moved to the blob, as JSON compressed by zlib. The header then has the key `packed`;
its value is the name of the moved key.
"""

from __future__ import annotations

import struct

from tfdeploy.agent import json_text
from tfdeploy.agent.annotations import TYPE_CHECKING, BinaryIO, Mapping, Optional, Tuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Unchecked

# The first line that the agent prints. Any earlier output comes from the login shell.
GREETING = b"=tfdeploy-agent="
MAX_HEADER_BYTES = 1 << 20
MAX_BLOB_BYTES = 64 << 20
MAX_PACKED_BYTES = 64 << 20  # limits the size of an unpacked blob
HEARTBEAT_S = 5.0  # the interval at which the control machine pings the agent, in seconds
SILENCE_S = 30.0  # an agent that has received nothing for this many seconds ends its session


class WireError(Exception):
    """The bytes on the channel are not a valid frame."""


_HEAD = struct.Struct("!II")


def encode_frame(header: Mapping[str, object], blob: bytes = b"") -> bytes:
    return b"".join(encode_frame_parts(header, blob))


def encode_frame_parts(header: Mapping[str, object], blob: bytes) -> Tuple[bytes, bytes]:
    """Return one frame in two parts: everything before the blob, and the blob. The blob is not
    copied, because the same blob may be sent to many hosts. Raises WireError if the frame is too
    large."""
    text = json_text.encode(header)
    if len(text) > MAX_HEADER_BYTES and not blob:
        header, blob = _move_large_field_to_blob(header)
        text = json_text.encode(header)
    if len(text) > MAX_HEADER_BYTES or len(blob) > MAX_BLOB_BYTES:
        raise WireError("frame too large: %d + %d bytes" % (len(text), len(blob)))
    return _HEAD.pack(len(text), len(blob)) + text, blob


def _move_large_field_to_blob(header: Mapping[str, object]) -> Tuple[Mapping[str, object], bytes]:
    for name in ("args", "value", "item"):
        if name in header:
            others = {key: value for key, value in header.items() if key != name}
            return dict(others, packed=name), compress(json_text.encode(header[name]))
    return header, b""


def compress(content: bytes) -> bytes:
    import zlib

    return zlib.compress(content, 1)


def decompress(blob: bytes, most_bytes: int = MAX_PACKED_BYTES) -> bytes:
    """Return the content that `compress` has compressed. Raises WireError if the blob is invalid,
    or if its content is longer than `most_bytes`. No more than `most_bytes` are unpacked, so a blob
    cannot use up the memory."""
    return decompress_first(blob, most_bytes)[0]


def decompress_first(blob: bytes, most_bytes: int = MAX_PACKED_BYTES) -> Tuple[bytes, bytes]:
    """Unpack the compressed content at the beginning of the blob. Return (the content, the
    remaining bytes of the blob). Limits and errors are the same as for `decompress`."""
    import zlib

    reader = zlib.decompressobj()
    try:
        content = reader.decompress(blob, most_bytes)
        whole = reader.eof or not reader.decompress(reader.unconsumed_tail, 1)
    except zlib.error as error:
        raise WireError("the blob cannot be unpacked: %s" % error) from error
    if not whole:
        raise WireError("the blob contains more than %d bytes" % most_bytes)
    if not reader.eof:
        raise WireError("the blob is not complete")
    return content, reader.unused_data


def read_frame(stream: BinaryIO) -> Optional[Tuple[Unchecked, bytes]]:
    """Read one frame from a buffered stream, and return its header and its blob. Return None at the
    end of the stream. Raises WireError if the bytes are not a valid frame."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    header_bytes, blob_bytes = _HEAD.unpack(head)
    if header_bytes > MAX_HEADER_BYTES or blob_bytes > MAX_BLOB_BYTES:
        raise WireError(
            "not a frame: its lengths are too large: %d + %d bytes" % (header_bytes, blob_bytes)
        )
    text, blob = stream.read(header_bytes), stream.read(blob_bytes)
    if len(text) < header_bytes or len(blob) < blob_bytes:
        return None
    try:
        header = json_text.loads(text)
    except ValueError as error:
        raise WireError("the header of a frame is not JSON") from error
    if not isinstance(header, dict):
        raise WireError("the header of a frame is not a JSON object")
    if "packed" not in header:
        return header, blob
    try:
        return dict(header, **{str(header["packed"]): json_text.loads(decompress(blob))}), b""
    except ValueError as error:
        raise WireError("the blob is not JSON") from error
