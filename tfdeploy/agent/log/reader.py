"""Read a task's log, which may be written, rotated or removed at the same time. format.py describes
the files.

The bytes are not decoded, and no byte is returned twice. Bytes that a rotation has removed before
they were read are counted.
"""

from __future__ import annotations

import os
import time

from tfdeploy.agent.annotations import Callable, List, Optional
from tfdeploy.agent.log.format import INDEX, LOG, OLD, RECORD, Record, unpack_records
from tfdeploy.agent.record import NamedTuple

PIECE_BYTES = 256 << 10
PIECE_RECORDS = 8192
_BLOCK_BYTES = 3277 * RECORD.size
_TRIES = 50  # how often opening a log is tried during a rotation, with pauses of 1 ms


class Piece(NamedTuple):
    offset: int  # offset of the first byte of `blob`, counted from the beginning of the run
    # Each record is [offset within `blob`, UTC seconds, stream, attempt]. The first record has the
    # offset 0.
    records: List[List[float]]
    blob: bytes
    gone: int  # how many bytes directly before `blob` were removed before they could be read


class Segment:
    """The two files of a segment, both open: the log and its index. They stay readable after they
    are renamed or removed."""

    def __init__(self, log: int, index: int, base: int) -> None:
        self.log, self.index, self.base = log, index, base
        log_stat = os.fstat(log)
        self.identity = (log_stat.st_dev, log_stat.st_ino)

    @property
    def end(self) -> int:
        """Return the offset at which the log ends now."""
        return self.base + os.fstat(self.log).st_size

    @property
    def count(self) -> int:
        return os.fstat(self.index).st_size // RECORD.size

    def record(self, position: int) -> Record:
        return Record(*RECORD.unpack(os.pread(self.index, RECORD.size, position * RECORD.size)))

    def count_records(self, is_before: Callable[[Record], bool]) -> int:
        """Return the number of records for which `is_before` is true. The search is binary, so
        these records must all come before the others."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if is_before(self.record(middle)):
                low = middle + 1
            else:
                high = middle
        return low

    def close(self) -> None:
        os.close(self.log)
        os.close(self.index)


class OpenSegments:
    """The segments of a log, in a `with` block in which their files are open. The older segment
    comes first. They belong to one state of the log, so no rotation lies between them."""

    def __init__(self, task_dir: str) -> None:
        self._segments = open_segments(task_dir)

    def __enter__(self) -> List[Segment]:
        return self._segments

    def __exit__(self, *_: object) -> None:
        for segment in self._segments:
            segment.close()


def open_segments(task_dir: str) -> List[Segment]:
    """Open the segments of the log and return them. The older one comes first. They belong to one
    state of the log: if a rotation is under way, the function tries again. The caller closes them.
    """
    paths = [os.path.join(task_dir, name) for name in (LOG, INDEX, LOG + OLD, INDEX + OLD)]
    for attempt in range(_TRIES):
        log, index, old_log, old_index = fds = [_open(path) for path in paths]
        moved = not all(map(_is_same_file, fds, paths))
        rotating = _size(log) > 0 and _size(index) < RECORD.size
        if (moved or rotating) and attempt < _TRIES - 1:
            _close(fds)
            time.sleep(0.001)
            continue
        if rotating:  # the writer has died during the rotation (see format.py)
            _close([index, old_log])
            return _open_segment(log, old_index)
        return _open_segment(old_log, old_index) + _open_segment(log, index)
    raise AssertionError("not reached")


class LogReader:
    """Reads a log piece by piece. `offset`: where the next piece begins. A later reader that is
    created with this offset continues there."""

    def __init__(self, task_dir: str, offset: int = 0) -> None:
        self.offset = offset
        self._task_dir = task_dir
        self._segment: Optional[Segment] = None
        self._gone = 0
        # Records that were read from the index, but describe bytes that were not returned yet.
        self._records: List[Record] = []
        self._position = 0  # the number of the next record to read from the index

    def read(self, limit: int = PIECE_BYTES) -> Optional[Piece]:
        """Return the next piece, which has at most `limit` bytes. Return None if there is nothing
        new."""
        piece = self._next_piece(limit)
        # After a rotation, the open segment no longer grows. It may still have bytes that were
        # written before the rotation, so it is read once more. After that, the next segment is
        # read.
        if piece is None and self._was_rotated():
            piece = self._next_piece(limit)
            if piece is None and self._open_segment_at_offset():
                piece = self._next_piece(limit)
        return piece

    def end(self) -> int:
        """Return the offset at which the log ends now."""
        with OpenSegments(self._task_dir) as segments:
            return segments[-1].end if segments else self.offset

    def close(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _open_segment_at_offset(self) -> bool:
        """Open the segment that contains the byte at `offset`. If that byte was removed, open the
        first segment after it. Return False if the log has no segment."""
        self.close()
        segments = open_segments(self._task_dir)
        while len(segments) > 1 and self.offset >= segments[0].end:
            segments.pop(0).close()
        for other in segments[1:]:
            other.close()
        if not segments:
            return False
        self._segment = segments[0]
        # The log may end before `offset`: a power cut may have lost bytes that were already read.
        self.offset = min(self.offset, self._segment.end)
        skipped = max(0, self._segment.base - self.offset)
        self._gone += skipped
        self.offset += skipped
        self._records = []
        passed = self._segment.count_records(lambda record: record.offset <= self.offset)
        self._position = max(0, passed - 1)
        return True

    def _was_rotated(self) -> bool:
        if self._segment is None:
            return True
        try:
            log_stat = os.stat(os.path.join(self._task_dir, LOG))
        except FileNotFoundError:
            return False
        return (log_stat.st_dev, log_stat.st_ino) != self._segment.identity

    def _next_piece(self, limit: int) -> Optional[Piece]:
        segment = self._segment
        if segment is None:
            return None
        # The log's size is read first, and the index later. So the index has a record for each byte
        # before `end`.
        end = segment.end
        if end <= self.offset:
            return None
        blob = os.pread(segment.log, min(limit, end - self.offset), self.offset - segment.base)
        if not blob:  # the log was truncated after its size was read
            return None
        records = self._records_until(segment, self.offset + len(blob), end)
        if len(records) > PIECE_RECORDS:
            blob = blob[: int(records[PIECE_RECORDS][0])]
            del records[PIECE_RECORDS:]
        piece = Piece(self.offset, records, blob, self._gone)
        self._gone = 0
        self.offset += len(blob)
        return piece

    def _records_until(self, segment: Segment, end: int, known_end: int) -> List[List[float]]:
        """Return the records that describe the bytes from `self.offset` to `end`. They have the
        form of Piece.records. `known_end`: see _read_index."""
        described: List[List[float]] = []
        while True:
            for passed, record in enumerate(self._records):
                if record.offset >= end or len(described) > PIECE_RECORDS:
                    del self._records[: max(0, passed - 1)]
                    return described
                relative = max(0, record.offset - self.offset)
                if described and described[-1][0] == relative:
                    described.pop()
                described.append([relative, record.time, record.stream, record.attempt])
            # The last record is kept in `_records`, because it may also describe bytes that are
            # read later.
            del self._records[:-1]
            if not self._read_index(segment, known_end):
                return described

    def _read_index(self, segment: Segment, known_end: int) -> bool:
        """Read more records from the index. Return False if there are none. `known_end`: where the
        log ended before the index was read. The bytes of a record at or after `known_end` may not
        be written yet, and the record may still be replaced. So it is left for a later call."""
        block = os.pread(segment.index, _BLOCK_BYTES, self._position * RECORD.size)
        records = unpack_records(block)
        while records and records[-1].offset >= known_end:
            records.pop()
        self._position += len(records)
        self._records += records
        return bool(records)


def _open(path: str) -> Optional[int]:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None


def _is_same_file(open_fd: Optional[int], path: str) -> bool:
    try:
        file_stat = os.stat(path)
    except FileNotFoundError:
        return open_fd is None
    return open_fd is not None and os.path.samestat(os.fstat(open_fd), file_stat)


def _size(fd: Optional[int]) -> int:
    return 0 if fd is None else os.fstat(fd).st_size


def _close(fds: List[Optional[int]]) -> None:
    for fd in fds:
        if fd is not None:
            os.close(fd)


def _open_segment(log: Optional[int], index: Optional[int]) -> List[Segment]:
    if log is None or index is None or _size(log) == 0 or _size(index) < RECORD.size:
        _close([log, index])
        return []
    return [Segment(log, index, RECORD.unpack(os.pread(index, RECORD.size, 0))[0])]
