"""When, on which stream and in which attempt the bytes of a fetched log were written:
`worker-0@n3.times` beside it.

Records of !QdBxH, as on hosts (agent/log/format.py), by the run's clock: offset of the first byte,
UTC seconds, stream, attempt.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from tfdeploy.model.answers.runs import Record

RECORD = struct.Struct("!QdBxH")
_BLOCK_RECORDS = 4096
_MOST_TIME = 1e11  # UTC seconds
_MOST_ATTEMPT = (1 << 16) - 1


def times_name(task: str, host: str) -> str:
    return f"{task.replace(':', '-')}@{host}.times"


def packed(offset: int, records: Iterable[Record], length: int) -> bytes:
    """The records of a piece of `length` bytes from `offset` on; at most one for each byte,
    whatever the host says."""
    chunks: dict[int, bytes] = {}
    latest = -1
    for begin, time, stream, attempt in records:
        if latest <= begin < length:
            latest = begin
            chunks[begin] = RECORD.pack(offset + begin, time, stream, min(attempt, _MOST_ATTEMPT))
    return b"".join(chunks.values())


def _is_sound(record: Record) -> bool:
    """A disk that was full may have cut a record, and those behind it are read wrongly."""
    _, time, stream, _ = record
    return 0 <= time < _MOST_TIME and stream in (0, 1)


def read_records(path: Path) -> Iterator[Record]:
    """All records, as they were appended. What a fetch that was cut off left half written is passed
    over."""
    try:
        with path.open("rb") as times:
            while block := times.read(_BLOCK_RECORDS * RECORD.size):
                whole = len(block) // RECORD.size * RECORD.size
                yield from (
                    record for record in RECORD.iter_unpack(block[:whole]) if _is_sound(record)
                )
    except OSError:
        return
