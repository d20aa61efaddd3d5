"""A task's log on disk, and its only writer. The reader is reader.py.

Two segments at most, `.1` being the older one, each a pair: out.log, the raw bytes of both pipes,
and out.index, records of !QdBxH (offset of the first byte, counted from the run's beginning; UTC
seconds; stream 0 or 1; attempt). A record reaches to the next one. It is written before its bytes,
so a reader that takes the log's size first and reads the index then never sees a byte without its
record. Of records with the same offset the last one counts.

Rotation renames the index, then the log, then makes a new log and last a new index. So: a log with
bytes and no index beside it belongs to out.index.1, and an absent or empty log beside no index is a
segment not yet begun.
"""

from __future__ import annotations

import errno
import os
import struct

from tfdeploy.agent.annotations import List, Optional, Tuple
from tfdeploy.agent.record import NamedTuple

RECORD = struct.Struct("!QdBxH")
MERGE_S = 0.010  # chunks of one stream and attempt within this time share a record
LOG, INDEX = "out.log", "out.index"
OLD = ".1"
LEAST_SEGMENT_BYTES = 4096
_LOOK_EVERY_S = 1.0  # how often the writer checks that its log was not removed


class Record(NamedTuple):
    offset: int
    time: float
    stream: int
    attempt: int


def first_record(index_path: str) -> Optional[Record]:
    """Return the record with which a segment begins: its offset is that of the segment's first
    byte."""
    try:
        with open(index_path, "rb") as index:
            head = index.read(RECORD.size)
    except FileNotFoundError:
        return None
    return Record(*RECORD.unpack(head)) if len(head) == RECORD.size else None


class LogWriter:
    """Appends what a task prints. Never raises for a full or failing disk: what does not fit is
    counted in `lost_bytes` and leaves no gap in the offsets. `end` is the offset of the next byte.
    One writer per folder."""

    def __init__(self, task_dir: str, max_bytes: int) -> None:
        self.lost_bytes = 0
        self.end = 0
        self._log_path, self._index_path = (
            os.path.join(task_dir, LOG),
            os.path.join(task_dir, INDEX),
        )
        self._segment_max = max(max_bytes // 2, LEAST_SEGMENT_BYTES)
        self._fds: Optional[Tuple[int, int]] = None
        self._log_bytes = self._index_bytes = 0
        self._last: Optional[Record] = None
        self._looked = 0.0  # UTC seconds
        try:
            self._resume()
        except OSError:
            pass  # the disk is full or gone: append tries again

    def append(self, chunk: bytes, stream: int, attempt: int, now: float) -> None:
        """Append one read of a pipe. stream 0 is standard output, 1 standard error; now is UTC
        seconds."""
        view = memoryview(chunk)
        try:
            self._follow_removal(now)
            while view:
                if self._is_full(len(view)):
                    self._rotate()
                room = max(self._segment_max - self._log_bytes - self._index_bytes - RECORD.size, 1)
                view = view[self._write(view[:room], stream, attempt, now) :]
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
            # its bytes were lost: a full disk must not fill the index
            self._index_bytes -= RECORD.size
        self._last = None  # until it is really there
        if os.pwrite(index, RECORD.pack(*record), self._index_bytes) < RECORD.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._index_path)
        self._index_bytes += RECORD.size
        self._last = record

    def _is_full(self, coming: int) -> bool:
        used = self._log_bytes + self._index_bytes
        return (
            self._log_bytes > 0
            and used + RECORD.size + min(coming, self._segment_max // 2) > self._segment_max
        )

    def _rotate(self) -> None:
        self.close()
        _rename(self._index_path)
        _rename(self._log_path)
        self._begin_segment()

    def _begin_segment(self) -> None:
        self._log_bytes = self._index_bytes = 0
        self._last = None

    def _open(self) -> Tuple[int, int]:
        if self._fds is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            log = os.open(self._log_path, flags | os.O_APPEND, 0o600)
            try:
                self._fds = log, os.open(self._index_path, flags, 0o600)
            except OSError:
                os.close(log)
                raise
        return self._fds

    def _follow_removal(self, now: float) -> None:
        if self._fds is None or 0 <= now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        log, index = os.fstat(self._fds[0]), os.fstat(self._fds[1])
        if log.st_nlink == 0 or index.st_nlink == 0 or log.st_size < self._log_bytes:
            self.close()
            self._remove_segment()
            self._begin_segment()

    def _resume(self) -> None:
        """Continue where the last writer of this folder ended, also in the middle of a rotation."""
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
        for path in (self._index_path, self._log_path):  # one file of a pair is of no use
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


def unpack(block: bytes) -> List[Record]:
    """Return the complete records in `block`."""
    whole = len(block) // RECORD.size * RECORD.size
    return [Record(*fields) for fields in RECORD.iter_unpack(block[:whole])]
