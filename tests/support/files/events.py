"""Write valid and invalid TensorBoard event files without TensorFlow."""

from __future__ import annotations

import struct

from tfdeploy.agent.sampling.event_record import masked_crc


def varint(value: int) -> bytes:
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def length_delimited(number: int, data: bytes) -> bytes:
    """Return a length-delimited field, which holds bytes, text or a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def simple_value(tag: str, value: float) -> bytes:
    """Return a Summary.Value in the format of TensorFlow 1."""
    return length_delimited(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def event(*values: bytes) -> bytes:
    return (
        b"\x09"
        + struct.pack("<d", 1.8e9)
        + b"\x10\x01"
        + length_delimited(5, b"".join(length_delimited(1, value) for value in values))
    )


def record_header(length: int) -> bytes:
    """Return the header of a record with this length."""
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc(packed))


def record(data: bytes) -> bytes:
    return record_header(len(data)) + data + struct.pack("<I", masked_crc(data))


def scalar(tag: str, value: float) -> bytes:
    return record(event(simple_value(tag, value)))
