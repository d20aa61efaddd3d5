"""Event files of TensorBoard by hand: whole ones, and such as no writer makes."""

from __future__ import annotations

import struct

from tfdeploy.agent.sampling.event_record import masked_crc


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def block(number: int, data: bytes) -> bytes:
    """A field of bytes, text, or a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def simple(tag: str, value: float) -> bytes:
    """A Summary.Value as TensorFlow 1 writes it."""
    return block(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def event(*values: bytes) -> bytes:
    return (
        b"\x09"
        + struct.pack("<d", 1.8e9)
        + b"\x10\x01"
        + block(5, b"".join(block(1, value) for value in values))
    )


def head(length: int) -> bytes:
    """Of a record that says to be so long."""
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc(packed))


def record(data: bytes) -> bytes:
    return head(len(data)) + data + struct.pack("<I", masked_crc(data))


def scalar(tag: str, value: float) -> bytes:
    return record(event(simple(tag, value)))
