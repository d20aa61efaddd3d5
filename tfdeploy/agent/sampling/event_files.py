"""Read metrics from the TensorBoard event files of a run on this host. Each call reads what was
written since the previous call.

No part of a file is read twice. One call reads only a limited number of bytes. If more was written,
the call reads short records before long ones, because scalars are short, and newer records before
older ones. Records beyond the limit are never read. Damaged records are skipped too, and each
damaged file is reported once.
"""

from __future__ import annotations

import os
import re
import sys
import time
from itertools import islice

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Iterator, List, Tuple
from tfdeploy.agent.host.file_sum import open_file
from tfdeploy.agent.metric_names import Scalar, display_rank
from tfdeploy.agent.sampling.event_folders import EventFolders
from tfdeploy.agent.sampling.event_record import (
    HEAD_BYTES,
    TAIL_BYTES,
    data_length,
    is_whole,
    parse_scalars,
    parse_step_and_time,
)
from tfdeploy.agent.sampling.printed import MOST_METRICS, MOST_NAME_CHARS

if TYPE_CHECKING:
    from tfdeploy.agent import wire
    from tfdeploy.agent.run.folder import RunPaths
    from tfdeploy.agent.sampling.event_folders import FoundEventFile

    Record = Tuple[int, int]  # (offset, size) of a record's data in the file
    Written = Tuple[float, int, float]  # (value, step, UTC seconds when it was written)

# A call that has used this many CPU seconds leaves the remaining files to the next call.
CALL_CPU_S = 0.01
# One call decodes at most this many bytes and records of a file.
FILE_BYTES, FILE_RECORDS = 1 << 16, 256
RECORD_BYTES = 1 << 16  # larger records (images, graphs) are skipped
SHORT_BYTES = 512  # the record of one scalar is shorter than this
HOPS = 512  # at most this many record headers are read in one go
# A call that has read HOPS headers jumps to the last WINDOW_BYTES of the file, to get the newest
# records too.
WINDOW_BYTES = 1 << 14
# Limits of a search for the next record header after damage. The search begins at most SEARCH_BYTES
# before the end of the file, reads blocks of BLOCK_BYTES, and examines TRIES runs of zeros in a
# block.
SEARCH_BYTES, BLOCK_BYTES, TRIES = 1 << 22, 1 << 16, 16
MOST_REPORTED = 8  # at most this many damaged files are reported
# A record begins with its length in 8 bytes. The last five are zero if it is below 16 MiB.
_ZEROS = re.compile(rb"\0\0\0\0\0+")


class EventFile:
    """The read position in one event file. Programs append to the file."""

    def __init__(self) -> None:
        # The number of the last call of EventMetrics.read_new_values that read this file.
        self.last_call = 0
        self.damaged = False
        self._path, self._at, self._size = "", 0, 0
        self._inode = (0, 0)
        # `_lost`: True if it is unknown where the next record begins, for example after damage.
        # `_waits`: True if the next record is not complete yet.
        self._lost = self._waits = False

    def has_grown(self, path: str, inode: Tuple[int, int]) -> bool:
        """Return True if the file has content that was not read yet. If the file was replaced or
        has become shorter, it will be read from its beginning again."""
        try:
            size = os.lstat(path).st_size
        except OSError:
            return False
        if inode != self._inode or size < self._size:
            self._at, self._lost, self._size = 0, False, 0
        if size != self._size:
            self._waits = False
        self._path, self._inode, self._size = path, inode, size
        return size > self._at and not self._waits

    def read(self) -> Dict[str, Written]:
        """Return {tag: newest value} for the records that were not read yet."""
        file = open_file(self._path)
        if file is None:
            return {}
        try:
            about = os.fstat(file)
            return (
                self._read(file, about.st_size)
                if (about.st_dev, about.st_ino) == self._inode
                else {}
            )
        except OSError:
            return {}
        finally:
            os.close(file)

    def _read(self, file: int, end: int) -> Dict[str, Written]:
        self._find_record_head(file, end)
        records = self._skip_records(file, end)
        if len(records) >= HOPS and end - self._at > WINDOW_BYTES:
            self._at, self._lost = end - WINDOW_BYTES, True
            self._find_record_head(file, end)
            records += self._skip_records(file, end)
        scalars: Dict[str, Written] = {}
        for at, size in sorted(_choose_records(records)):
            scalars.update(self._scalars(file, at, size))
        return scalars

    def _skip_records(self, file: int, end: int) -> List[Record]:
        """Move the read position over up to HOPS complete records, and return (offset, size) of
        each. Only the headers of the records are read."""
        records: List[Record] = []
        while not self._lost and not self._waits and len(records) < HOPS:
            self._waits = end - self._at < HEAD_BYTES
            if self._waits:
                break
            size = data_length(os.pread(file, HEAD_BYTES, self._at))
            if size is None:
                self._lost = self.damaged = True
                break
            begin, after = self._at + HEAD_BYTES, self._at + HEAD_BYTES + size + TAIL_BYTES
            self._waits = after > end
            if not self._waits:
                self._at = after
                records.append((begin, size))
        return records

    def _scalars(self, file: int, offset: int, size: int) -> Dict[str, Written]:
        content = os.pread(file, size + TAIL_BYTES, offset)
        if not is_whole(content[:size], content[size:]):
            self.damaged = True
            return {}
        try:
            step, when = parse_step_and_time(content[:size])
            return {
                tag: (value, step, when) for tag, value in parse_scalars(content[:size]).items()
            }
        except ValueError:  # the record does not contain a TensorBoard Event
            self.damaged = True
            return {}

    def _find_record_head(self, file: int, end: int) -> None:
        """If it is unknown where the next record begins, search for its header and move the read
        position there."""
        if not self._lost:
            return
        self._at = max(self._at, end - SEARCH_BYTES)
        while self._lost and end - self._at >= HEAD_BYTES:
            part = os.pread(file, min(BLOCK_BYTES, end - self._at), self._at)
            begin = next(
                (
                    begin
                    for begin in _possible_heads(part)
                    if data_length(part[begin : begin + HEAD_BYTES]) is not None
                ),
                None,
            )
            self._lost = begin is None
            self._at += max(1, len(part) - HEAD_BYTES + 1) if begin is None else begin


def _possible_heads(part: bytes) -> Iterator[int]:
    """Yield the offsets in `part` at which a record may begin. A record begins with its length in 8
    bytes, of which only the first three may differ from zero. So the function looks for runs of
    zeros, and examines only the first TRIES of them."""
    for zeros in islice(_ZEROS.finditer(part), TRIES):
        yield from range(max(0, zeros.start() - 3), zeros.start())


def _choose_records(records: List[Record]) -> List[Record]:
    """Return the records to read: short ones before long ones, and newer ones before older ones, up
    to the limits FILE_BYTES and FILE_RECORDS."""
    bytes_left = FILE_BYTES
    chosen_records: List[Record] = []
    for at, size in sorted(records, key=lambda record: (record[1] > SHORT_BYTES, -record[0])):
        if size <= RECORD_BYTES and bytes_left > 0 and len(chosen_records) < FILE_RECORDS:
            bytes_left -= size
            chosen_records.append((at, size))
    return chosen_records


class EventMetrics:
    """The metrics in the event files of one host. A metric is named `FOLDER/TAG`. event_folders.py
    describes FOLDER."""

    def __init__(self, paths: RunPaths, part: wire.HostPart) -> None:
        self._folders = EventFolders(paths, part)
        self._files: Dict[str, EventFile] = {}
        self._calls = 0
        self._reported = 0
        self.scalars: Dict[str, Scalar] = {}  # name of the metric -> its newest value
        self._priorities: Dict[str, int] = {}

    @property
    def known_values(self) -> Dict[str, float]:
        return {name: each.value for name, each in self.scalars.items()}

    def read_new_values(self) -> Dict[str, float]:
        """Return {name: newest value} for the metrics that were written since the last call."""
        begin_s = time.process_time()
        self._calls += 1
        at = self._folders.find_files()
        self._files = {path: self._files.get(path) or EventFile() for path in at}
        read: List[Tuple[int, str, Dict[str, Written]]] = []
        for path in self._list_grown(at):
            if read and time.process_time() - begin_s > CALL_CPU_S:
                break
            self._files[path].last_call = self._calls
            read.append((at[path].created_s, path, self._read(path)))
        figures: Dict[str, float] = {}
        # The files of later attempts come last, so that their values replace those of earlier
        # attempts.
        for _, path, values in sorted(read, key=lambda each: each[:2]):
            for tag, written in values.items():
                name = "%s/%s" % (at[path].name, tag)
                if len(name) <= MOST_NAME_CHARS and self._make_room_for_metric(name):
                    figures[name] = written[0]
                    self.scalars[name] = Scalar(at[path].name, tag, *written)
        return {name: value for name, value in figures.items() if name in self.scalars}

    def _make_room_for_metric(self, name: str) -> bool:
        """Return True if the values of this metric are to be kept. If there are MOST_METRICS
        metrics already, the metric with the lowest priority is dropped for it. Return False if the
        new metric would itself have the lowest priority."""
        if name in self._priorities:
            return True
        rank = display_rank(name)
        if len(self._priorities) >= MOST_METRICS:
            last = max(self._priorities, key=self._priorities.__getitem__)
            if rank >= self._priorities[last]:
                return False
            del self._priorities[last], self.scalars[last]
        self._priorities[name] = rank
        return True

    def _list_grown(self, files: Dict[str, FoundEventFile]) -> List[str]:
        """Return the files with content that was not read yet. The file whose last read is longest
        ago comes first."""
        grown = [path for path in files if self._files[path].has_grown(path, files[path].inode)]
        return sorted(
            grown, key=lambda path: (self._files[path].last_call, files[path].created_s, path)
        )

    def _read(self, path: str) -> Dict[str, Written]:
        file = self._files[path]
        before = file.damaged
        scalars = file.read()
        if file.damaged and not before and self._reported < MOST_REPORTED:
            self._reported += 1
            # The standard error of this process is the log of the minder.
            sys.stderr.write("event file %r: damaged records are left out\n" % path)
            sys.stderr.flush()
        return scalars
