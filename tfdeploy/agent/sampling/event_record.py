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
# Number of a tensor's type -> struct format of one element in the field tensor_content.
_CONTENT = {
    1: "<f",
    2: "<d",
    3: "<i",
    4: "<B",
    5: "<h",
    6: "<b",
    9: "<q",
    10: "<?",
    17: "<H",
    19: "<e",
    22: "<I",
    23: "<Q",
}
_BFLOAT16 = 14
# Numbers of the fields that can contain a tensor's elements. _LISTS: floats, with their struct
# format. _WHOLE: integers, as varints. _HALVES: 16-bit floats, whose bits are stored as integers.
_LISTS = {5: "<f", 6: "<d"}
_WHOLE, _HALVES = (7, 10, 11, 16, 17), 13
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
    element is not a number."""
    kind, content, elements = 0, b"", []  # type: int, bytes, List[float]
    for number, value in _parse_fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif (
            number == 2
            and isinstance(value, bytes)
            and any(inner == 2 for inner, _ in _parse_fields(value))
        ):
            return None  # a tensor with dimensions is not a scalar
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number in _LISTS or number in _WHOLE or number == _HALVES:
            elements += _tensor_elements(number, value, kind)
    if content:
        if kind == _BFLOAT16:
            # A bfloat16 is the first half of a float32.
            return _unpack("<f", b"\0\0" + content)
        return _unpack(_CONTENT.get(kind, ""), content)
    if len(elements) == 1:
        return elements[0]
    # If all elements of a tensor are zero, TensorFlow leaves them out.
    return 0.0 if not elements and kind in (*_CONTENT, _BFLOAT16) else None


def _tensor_elements(number: int, value: Union[int, bytes], kind: int) -> List[float]:
    """Return the first elements of one field, which may be packed. At most two are needed: a tensor
    with two elements is not a scalar."""
    if number in _LISTS:
        form = _LISTS[number]
        size = struct.calcsize(form)
        packed = value if isinstance(value, bytes) else b""
        whole_bytes = min(2, len(packed) // size) * size
        return [element for (element,) in struct.iter_unpack(form, packed[:whole_bytes])]
    integers = [value] if isinstance(value, int) else _parse_varints(value)
    if number == _HALVES:
        return [_unpack_half(kind, bits & 0xFFFF) for bits in integers]
    unsigned = number in (16, 17)
    return [float(each if unsigned or each < 1 << 63 else each - (1 << 64)) for each in integers]


def _parse_varints(data: bytes) -> List[int]:
    numbers: List[int] = []
    offset = 0
    while offset < len(data) and len(numbers) < 2:
        value, offset = _read_varint(data, offset)
        numbers.append(value)
    return numbers


def _unpack_half(kind: int, bits: int) -> float:
    """Return the 16-bit float with these bits. `kind` says which of the two formats it has:
    bfloat16 (the first half of a float32) or float16."""
    form, begin = ("<f", b"\0\0") if kind == _BFLOAT16 else ("<e", b"")
    return float(struct.unpack(form, begin + struct.pack("<H", bits))[0])


def _unpack(form: str, content: bytes) -> Optional[float]:
    """Return the element in `content`. Return None if `content` does not have the size of exactly
    one element of the format `form`."""
    is_one = form and struct.calcsize(form) == len(content)
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
