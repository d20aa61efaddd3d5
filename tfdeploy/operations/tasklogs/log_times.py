"""Store when, on which stream and in which attempt the bytes of a fetched log were written.

The file is `worker-0@n3.times` next to the log. A record has the format !QdBxH of `struct`, as on
hosts (agent/log/format.py): offset of the first byte, UTC seconds by the run's clock, stream,
attempt.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from tfdeploy.model.answers.runs import Record

RECORD = struct.Struct("!QdBxH")
_BLOCK_RECORDS = 4096
_MOST_TIME = 1e11  # later UTC seconds are invalid
_MOST_ATTEMPT = (1 << 16) - 1


def log_stem(task: str, host: str) -> str:
    """Return the beginning of the names of all files of a task's fetched log."""
    return f"{task.replace(':', '-')}@{host}"


def times_name(task: str, host: str) -> str:
    """Return the name of the file with the times of a task's log."""
    return f"{log_stem(task, host)}.times"


def log_files(names: Iterable[str], task: str, host: str) -> list[tuple[int, str]]:
    """Return (offset of the first byte, name) of those files that contain the task's log, sorted."""
    pattern = re.compile(re.escape(log_stem(task, host)) + r"(?:\.from-(\d+))?\.log")
    return sorted(
        (int(match[1] or 0), name) for name in names if (match := pattern.fullmatch(name))
    )


def pack_records(offset: int, records: Iterable[Record], length: int) -> bytes:
    """Pack the time records of a piece of a log. The piece has `length` bytes from `offset` on.

    At most one record is packed for each byte, whatever the host sends.
    """
    chunks: dict[int, bytes] = {}
    latest = -1
    for begin, time, stream, attempt in records:
        if latest <= begin < length:
            latest = begin
            chunks[begin] = RECORD.pack(offset + begin, time, stream, min(attempt, _MOST_ATTEMPT))
    return b"".join(chunks.values())


def read_records(path: Path) -> Iterator[Record]:
    """Yield all records in the order in which they were appended.

    Skips a record that an interrupted fetch has written only partly.
    """
    try:
        with path.open("rb") as times:
            while block := times.read(_BLOCK_RECORDS * RECORD.size):
                whole = len(block) // RECORD.size * RECORD.size
                for record in RECORD.iter_unpack(block[:whole]):
                    # If a full disk has cut a record, all later records are read at wrong offsets.
                    if 0 <= record[1] < _MOST_TIME and record[2] in (0, 1):
                        yield record
    except OSError:
        return
