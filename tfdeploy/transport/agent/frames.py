"""Split a stream of bytes into frames.

Each byte is copied only once, and at most one incomplete frame is in memory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from tfdeploy.agent import frames
from tfdeploy.text.typed import estimate_memory_bytes

_HEAD = struct.Struct("!II")


class Frame(NamedTuple):
    """One frame. `weight_bytes`: an estimate of the memory that its values take."""

    header: dict[str, Any]
    blob: bytes
    weight_bytes: int

    def has_field(self, field: str) -> bool:
        """True if the frame has the field `field`, either in its header or, compressed, in its
        blob."""
        return field in self.header or self.header.get("packed") == field

    @property
    def unpacked_blob(self) -> bytes:
        """Return the bytes that the sender attached, or b"" if the blob only has a compressed
        field."""
        return b"" if "packed" in self.header else self.blob


class Frames:
    """Collects the bytes of a stream and yields frames.

    `first_bytes`: the first bytes of the stream, if they have been read already.
    """

    def __init__(self, first_bytes: bytes = b"") -> None:
        self._parts: list[bytes] = [first_bytes] if first_bytes else []
        self._available = len(first_bytes)
        self._required = _HEAD.size

    def feed(self, data: bytes) -> None:
        self._parts.append(data)
        self._available += len(data)

    def complete_frames(self) -> Iterator[Frame]:
        """Yield the complete frames. Raises frames.WireError if the bytes are not frames."""
        if self._available < self._required:
            return
        data = b"".join(self._parts)
        start = 0
        try:
            while len(data) - start >= _HEAD.size:
                header_bytes, blob_bytes = _HEAD.unpack_from(data, start)
                if header_bytes > frames.MAX_HEADER_BYTES or blob_bytes > frames.MAX_BLOB_BYTES:
                    raise frames.WireError(
                        f"a frame of {header_bytes} + {blob_bytes} bytes is too large"
                    )
                end = start + _HEAD.size + header_bytes + blob_bytes
                if len(data) < end:
                    self._required = end - start
                    break
                middle = start + _HEAD.size + header_bytes
                text, blob = data[start + _HEAD.size : middle], data[middle:end]
                start = end
                self._required = _HEAD.size
                yield Frame(_header(text), blob, estimate_memory_bytes(text) + len(blob))
        finally:
            self._parts = [data[start:]] if start < len(data) else []
            self._available = len(data) - start


def _refuse_nonfinite(constant: str) -> float:
    """Raise WireError for the words NaN and Infinity. Python's decoder accepts them, JSON does
    not."""
    raise frames.WireError(f"a frame contains {constant}, which is not a number in JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_nonfinite)


def _header(text: bytes) -> dict[str, Any]:
    """Parse a frame's header. Raises WireError."""
    try:
        header = _DECODER.decode(text.decode("ascii"))
    except ValueError as error:
        raise frames.WireError("a frame that is not JSON") from error
    except RecursionError as error:
        raise frames.WireError("a frame that is nested too deep") from error
    if not isinstance(header, dict):
        raise frames.WireError("a frame that is not an object")
    return header
