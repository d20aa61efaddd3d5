"""Decode a record of a TensorBoard event file: its frame, and the scalars in its Event, which is
TensorBoard's message for one step. The functions have no side effects.

A frame (TFRecord) consists of the length of the data, the masked CRC32C of the length, the data,
and the masked CRC32C of the data. The data are protocol buffers:
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/util/event.proto and
framework/{summary,tensor}.proto
"""

from __future__ import annotations

import struct

from tfdeploy.agent.annotations import Dict, Iterator, List, Optional, Tuple, Union
from tfdeploy.agent.metric_lines import LARGEST

HEAD_BYTES, TAIL_BYTES = 12, 4  # bytes of a frame before and after the data
MOST_BYTES = 1 << 31  # a longer record is invalid: protocol buffers have the same limit
MOST_FIELDS = 4096  # a message with more fields is invalid
# An Event with a higher step than MOST_STEPS, or a later time (UTC seconds) than MOST_TIME, is
# invalid.
MOST_STEPS, MOST_TIME = 10**13, 1e11
_HEAD, _TAIL = struct.Struct("<QI"), struct.Struct("<I")
_POLYNOMIAL, _MASK = 0x82F63B78, 0xA282EAD8
# The name of TensorBoard's plugin for scalars. Programs that use TensorFlow 1 write no plugin name.
_SCALARS = b"scalars"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Number of a tensor's type -> struct format of its elements. TensorFlow's function for scalars and
# PyTorch write only floats, whatever type the program gives to them.
_FLOATS = {1: "<f", 2: "<d"}
# Numbers of the fields that contain such elements: tensor_content, float_val, double_val.
_ELEMENTS = (4, 5, 6)
_LARGEST = 8  # bytes; a tensor with more is not a scalar
_Field = Tuple[int, Union[int, bytes]]


def _make_crc_table() -> List[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _make_crc_table()


def masked_crc(data: bytes) -> int:
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def data_length(head: bytes) -> Optional[int]:
    """Return the length of a record's data. `head`: the first HEAD_BYTES of the record. Return None
    if this is not the head of a record."""
    if len(head) != HEAD_BYTES:
        return None
    length, crc = _HEAD.unpack(head)
    return length if length <= MOST_BYTES and masked_crc(head[:8]) == crc else None


def is_whole(data: bytes, tail: bytes) -> bool:
    return len(tail) == TAIL_BYTES and bool(_TAIL.unpack(tail)[0] == masked_crc(data))


def parse_scalars(data: bytes) -> Dict[str, float]:
    """Return {tag: value} for the scalars in one Event. NaN and infinity are left out. Raises
    ValueError if `data` is not an Event."""
    scalars_by_tag: Dict[str, float] = {}
    for summary in _find_contents(data, 5):
        for value in _find_contents(summary, 1):
            tag, scalar = _parse_value(value)
            # The last comparison also leaves out NaN, because it is false for NaN.
            if tag and scalar is not None and abs(scalar) <= LARGEST:
                scalars_by_tag[tag] = scalar
    return scalars_by_tag


def parse_step_and_time(data: bytes) -> Tuple[int, float]:
    """Return (step, UTC seconds) of one Event. A step or time that is missing or invalid is 0.
    Raises ValueError if `data` is not an Event."""
    step, time = 0, 0.0
    for number, value in _parse_fields(data):
        if number == 1 and isinstance(value, bytes):
            time = _unpack("<d", value) or 0.0
        elif number == 2 and isinstance(value, int):
            step = value
    return (step if step <= MOST_STEPS else 0), (time if 0.0 < time < MOST_TIME else 0.0)


def _parse_value(data: bytes) -> Tuple[str, Optional[float]]:
    tag, scalar, plugin = "", None, b""
    for number, value in _parse_fields(data):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif number == 2 and isinstance(value, bytes):
            scalar = _unpack("<f", value)
        elif number == 8 and isinstance(value, bytes):
            scalar = _scalar_of_tensor(value)
        elif number == 9 and isinstance(value, bytes):
            names = (
                name for content in _find_contents(value, 1) for name in _find_contents(content, 1)
            )
            plugin = next(names, b"")
    return tag, scalar if plugin in (b"", _SCALARS) else None


def _scalar_of_tensor(data: bytes) -> Optional[float]:
    """Return the value of a tensor that is a scalar. Return None if it is not a scalar, or if its
    element is not a float."""
    form, elements = None, b""
    for number, value in _parse_fields(data):
        if number == 1 and isinstance(value, int):
            form = _FLOATS.get(value)
        elif not isinstance(value, bytes):
            continue
        elif number == 2 and any(inner == 2 for inner, _ in _parse_fields(value)):
            return None  # a tensor with dimensions is not a scalar
        elif number in _ELEMENTS and len(elements) <= _LARGEST:
            elements += value
    if form is None:
        return None
    # If all elements of a tensor are zero, TensorFlow leaves them out.
    return _unpack(form, elements) if elements else 0.0


def _unpack(form: str, content: bytes) -> Optional[float]:
    """Return the element in `content`. Return None if `content` does not have the size of exactly
    one element of the format `form`."""
    is_one = struct.calcsize(form) == len(content)
    return float(struct.unpack(form, content)[0]) if is_one else None


def _find_contents(message: bytes, field_number: int) -> Iterator[bytes]:
    """Yield the content of each field with the number `field_number` in a message. Raises
    ValueError."""
    for number, value in _parse_fields(message):
        if number == field_number and isinstance(value, bytes):
            yield value


def _parse_fields(data: bytes) -> Iterator[_Field]:
    """Yield (field number, value) for each field of a message. The value of a varint is an integer.
    All other values are bytes. Raises ValueError."""
    at = 0
    for _ in range(MOST_FIELDS):
        if at >= len(data):
            return
        key, at = _read_varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            length, at = _read_varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError("a field has the unknown type %d" % kind)
        if length > len(data) - at:
            raise ValueError("a field is longer than the rest of its message")
        yield key >> 3, data[at : at + length]
        at += length
    raise ValueError("a message has too many fields")


def _read_varint(data: bytes, offset: int) -> Tuple[int, int]:
    """Return (value, offset after the varint). Raises ValueError if the varint has no end."""
    value = shift = 0
    while shift < 70 and offset < len(data):
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        offset += 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, offset
        shift += 7
    raise ValueError("the last byte of a number is missing")
