"""Store when, on which stream and in which attempt the bytes of a fetched log were written.

A file next to the log, such as `worker-0@n3.times`, holds these facts as records. A record has the
`struct` format !QdBxH, as on hosts (agent/log/format.py): the offset of the first byte to which it
applies, the time in UTC seconds by the run's clock, the stream, and the attempt.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from tfdeploy.model.answers.runs import Record

RECORD = struct.Struct("!QdBxH")
_BLOCK_RECORDS = 4096
_MOST_TIME = 1e11  # the largest valid time, in UTC seconds
_MOST_ATTEMPT = (1 << 16) - 1


def log_stem(task: str, host: str) -> str:
    """Return the prefix that the names of all files of a task's fetched log have in common."""
    return f"{task.replace(':', '-')}@{host}"


def times_name(task: str, host: str) -> str:
    """Return the name of the file with the times of a task's log."""
    return f"{log_stem(task, host)}.times"


def log_files(names: Iterable[str], task: str, host: str) -> list[tuple[int, str]]:
    """Return the files of `names` that contain the task's log, as sorted (first offset, name)."""
    pattern = re.compile(re.escape(log_stem(task, host)) + r"(?:\.from-(\d+))?\.log")
    return sorted(
        (int(match[1] or 0), name) for name in names if (match := pattern.fullmatch(name))
    )


def pack_time_records(offset: int, records: Iterable[Record], length: int) -> bytes:
    """Pack the time records of one piece of a log. The piece begins at `offset` of the log.

    `length` is the number of bytes of the piece. At most one record is packed for each byte, even
    if the host sends more.
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
                    # If a full disk has cut a record short, all later records are read from wrong
                    # positions. Most of them then have impossible values and are skipped.
                    if 0 <= record[1] < _MOST_TIME and record[2] in (0, 1):
                        yield record
    except OSError:
        return
