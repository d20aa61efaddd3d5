"""Define the format of a task's log, and write it. reader.py reads it.

A log has at most two segments. The names of the older segment's files end in `.1`. A segment is a
pair of files:

- out.log has the raw bytes of standard output and standard error.
- out.index has records of the struct format !QdBxH: the offset of the first byte that the record
  describes, counted from the beginning of the run; UTC seconds; stream 0 or 1; the number of the
  attempt.

A record describes the bytes up to the next record, and is written before these bytes. So a reader
that reads the log's size before the index has a record for each byte. If several records have the
same offset, the last one counts.

A rotation renames out.index, then renames out.log, then creates a new out.log, and last creates a
new out.index. A reader may find any state in between, also for long, because a writer may die
there. If out.log has bytes and out.index is missing, the records are in out.index.1. If out.log is
missing or empty and out.index is missing, the new segment has not begun.
"""

from __future__ import annotations

import errno
import os
import struct

from tfdeploy.agent.annotations import List, Optional, Tuple
from tfdeploy.agent.record import NamedTuple

RECORD = struct.Struct("!QdBxH")
# Output of one stream and one attempt that arrives within this many seconds shares one record.
MERGE_S = 0.010
LOG, INDEX = "out.log", "out.index"
OLD = ".1"
LEAST_SEGMENT_BYTES = 4096  # a segment may have this size even if `max_bytes` is smaller
_CHECK_EVERY_S = 1.0  # the pause between two checks whether the log was removed


class Record(NamedTuple):
    offset: int
    time: float
    stream: int
    attempt: int


def first_record(index_path: str) -> Optional[Record]:
    """Return the first record of a segment, or None if the index has no complete record. The offset
    in the first record is that of the segment's first byte."""
    try:
        with open(index_path, "rb") as index:
            head = index.read(RECORD.size)
    except FileNotFoundError:
        return None
    return Record(*RECORD.unpack(head)) if len(head) == RECORD.size else None


class LogWriter:
    """Appends the output of a task to its log. Each folder has one writer. No error is raised if
    the disk is full or fails: the bytes that could not be written are counted in `lost_bytes`.
    Offsets count only bytes that were stored. `end`: the offset that the next byte will have."""

    def __init__(self, task_dir: str, max_bytes: int) -> None:
        self.lost_bytes = 0
        self.end = 0
        self._log_path = os.path.join(task_dir, LOG)
        self._index_path = os.path.join(task_dir, INDEX)
        self._segment_max = max(max_bytes // 2, LEAST_SEGMENT_BYTES)
        self._fds: Optional[Tuple[int, int]] = None
        self._log_bytes = self._index_bytes = 0
        self._last: Optional[Record] = None
        # When the writer last checked that its files still exist, in UTC seconds.
        self._checked_at = 0.0
        try:
            self._resume_segment()
        except OSError:
            pass  # The disk is full or fails. append() tries to open the files again.

    def append(self, chunk: bytes, stream: int, attempt: int, now: float) -> None:
        """Append the bytes of one read from a pipe. `stream`: 0 for standard output, 1 for standard
        error. `now`: UTC seconds."""
        view = memoryview(chunk)
        try:
            self._reopen_if_removed(now)
            while view:
                if self._is_full(len(view)):
                    self._rotate()
                free_bytes = max(
                    self._segment_max - self._log_bytes - self._index_bytes - RECORD.size, 1
                )
                view = view[self._write(view[:free_bytes], stream, attempt, now) :]
        except OSError:
            self.lost_bytes += len(view)

    def close(self) -> None:
        if self._fds is not None:
            os.close(self._fds[0])
            os.close(self._fds[1])
            self._fds = None

    def _write(self, part: memoryview, stream: int, attempt: int, now: float) -> int:
        log, index = self._open()
        last = self._last
        if (
            last is None
            or (last.stream, last.attempt) != (stream, attempt)
            or not 0 <= now - last.time < MERGE_S
        ):
            self._write_record(index, Record(self.end, now, stream, attempt))
        written = os.write(log, part)
        self._log_bytes += written
        self.end += written
        return written

    def _write_record(self, index: int, record: Record) -> None:
        if self._last is not None and self._last.offset == record.offset:
            # The last record has the same offset, so the bytes that it describes were not written,
            # for example because the disk was full. The new record replaces it. Otherwise each
            # failed write would add a record to the index.
            self._index_bytes -= RECORD.size
        self._last = None  # in case the record cannot be written
        if os.pwrite(index, RECORD.pack(*record), self._index_bytes) < RECORD.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._index_path)
        self._index_bytes += RECORD.size
        self._last = record

    def _is_full(self, new_bytes: int) -> bool:
        used = self._log_bytes + self._index_bytes
        return (
            self._log_bytes > 0
            and used + RECORD.size + min(new_bytes, self._segment_max // 2) > self._segment_max
        )

    def _rotate(self) -> None:
        self.close()
        _rename(self._index_path)
        _rename(self._log_path)
        self._log_bytes = self._index_bytes = 0
        self._last = None

    def _open(self) -> Tuple[int, int]:
        if self._fds is None:
            flags = os.O_WRONLY | os.O_CREAT
            log = os.open(self._log_path, flags | os.O_APPEND, 0o600)
            try:
                self._fds = log, os.open(self._index_path, flags, 0o600)
            except OSError:
                os.close(log)
                raise
        return self._fds

    def _reopen_if_removed(self, now: float) -> None:
        if self._fds is None or 0 <= now - self._checked_at < _CHECK_EVERY_S:
            return
        self._checked_at = now
        log, index = os.fstat(self._fds[0]), os.fstat(self._fds[1])
        if log.st_nlink == 0 or index.st_nlink == 0 or log.st_size < self._log_bytes:
            self.close()
            self._remove_segment()
            self._log_bytes = self._index_bytes = 0
            self._last = None

    def _resume_segment(self) -> None:
        """Continue the segment of the previous writer of this folder, which may have died in the
        middle of a rotation."""
        begin = first_record(self._index_path)
        if begin is None and _size(self._log_path):
            _rename(self._log_path)
        if begin is None:
            older = first_record(self._index_path + OLD)
            self.end = (older.offset if older else 0) + _size(self._log_path + OLD)
            self._remove_segment()
            return
        self._log_bytes = _size(self._log_path)
        self._index_bytes = _size(self._index_path) // RECORD.size * RECORD.size
        self.end = begin.offset + self._log_bytes

    def _remove_segment(self) -> None:
        # A log is of no use without its index, and an index is of no use without its log.
        for path in (self._index_path, self._log_path):
            if os.path.exists(path):
                os.unlink(path)


def _rename(path: str) -> None:
    if os.path.exists(path):
        os.rename(path, path + OLD)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def unpack_records(block: bytes) -> List[Record]:
    """Return the complete records in `block`."""
    size = len(block) // RECORD.size * RECORD.size
    return [Record(*fields) for fields in RECORD.iter_unpack(block[:size])]
