"""The metrics in the TensorBoard event files of a run on this host: those that were written since
the last look.

A file is never read twice. Where more was written than the bounds below allow, short records come
first, since scalars have such, and the newest of them; the others are passed over. What is damaged
is left out, and that is told once for each file.
"""

from __future__ import annotations

import os
import re
import sys
import time
from itertools import islice

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Iterator, List, Tuple
from tfdeploy.agent.host.file_sum import open_file
from tfdeploy.agent.metric_names import Scalar, priority
from tfdeploy.agent.sampling.event_folders import EventFolders
from tfdeploy.agent.sampling.event_record import (
    HEAD_BYTES,
    TAIL_BYTES,
    data_length,
    is_whole,
    moment,
    scalars,
)
from tfdeploy.agent.sampling.printed import MOST_METRICS, MOST_NAME_CHARS

if TYPE_CHECKING:
    from tfdeploy.agent import wire
    from tfdeploy.agent.run.folder import RunPaths
    from tfdeploy.agent.sampling.event_folders import FoundEventFile

    Record = Tuple[int, int]  # where its data begin, and their bytes
    Written = Tuple[float, int, float]  # a value, its step, and when it was written

# of CPU: a look that has used more begins with no further file; the next look does
LOOK_CPU_S = 0.01
FILE_BYTES, FILE_RECORDS = 1 << 16, 256  # that are read of one file in one look
RECORD_BYTES = 1 << 16  # a larger record (an image, a graph) is passed over
SHORT_BYTES = 512  # a record of one scalar is shorter
HOPS = 512  # over records of one file, in one look
WINDOW_BYTES = 1 << 14  # of the newest: where to go on after too many hops
# for the next record in one file, in one look; tries in one part
SEARCH_BYTES, PART_BYTES, TRIES = 1 << 22, 1 << 16, 16
MOST_TOLD = 8  # damaged files
_ZEROS = re.compile(rb"\0\0\0\0\0+")  # in the length of every record below 16 MiB


class EventFile:
    """One file that grows: where the next record begins in it; where it is `lost`, that is still to
    be found."""

    def __init__(self) -> None:
        self.looked = 0  # number of the last look that read it
        self.damaged = False
        self._path, self._at, self._size = "", 0, 0
        self._inode = (0, 0)
        self._lost = self._waits = False  # `_waits`: for the rest of a record

    def grown(self, path: str, inode: Tuple[int, int]) -> bool:
        """Whether there is more to read. A file that is smaller or another one is read from its
        beginning."""
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
        """The newest value of each tag."""
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
        self._search(file, end)
        records = self._hop(file, end)
        if len(records) >= HOPS and end - self._at > WINDOW_BYTES:
            self._at, self._lost = end - WINDOW_BYTES, True
            self._search(file, end)
            records += self._hop(file, end)
        scalars: Dict[str, Written] = {}
        for at, size in sorted(_chosen(records)):
            scalars.update(self._scalars(file, at, size))
        return scalars

    def _hop(self, file: int, end: int) -> List[Record]:
        """The next whole records, HOPS at most. Only their heads are read."""
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

    def _scalars(self, file: int, at: int, size: int) -> Dict[str, Written]:
        content = os.pread(file, size + TAIL_BYTES, at)
        if not is_whole(content[:size], content[size:]):
            self.damaged = True
            return {}
        try:
            step, when = moment(content[:size])
            return {tag: (value, step, when) for tag, value in scalars(content[:size]).items()}
        except ValueError:  # no Event
            self.damaged = True
            return {}

    def _search(self, file: int, end: int) -> None:
        """Goes to the first head from `at` on, where it is lost."""
        if not self._lost:
            return
        self._at = max(self._at, end - SEARCH_BYTES)
        while self._lost and end - self._at >= HEAD_BYTES:
            part = os.pread(file, min(PART_BYTES, end - self._at), self._at)
            begin = next(
                (
                    begin
                    for begin in _possible(part)
                    if data_length(part[begin : begin + HEAD_BYTES]) is not None
                ),
                None,
            )
            self._lost = begin is None
            self._at += max(1, len(part) - HEAD_BYTES + 1) if begin is None else begin


def _possible(part: bytes) -> Iterator[int]:
    """Where a head may begin: its length has at most three bytes before five zeros. Some TRIES."""
    for zeros in islice(_ZEROS.finditer(part), TRIES):
        yield from range(max(0, zeros.start() - 3), zeros.start())


def _chosen(records: List[Record]) -> List[Record]:
    """Those that are read."""
    left = FILE_BYTES
    chosen_records: List[Record] = []
    for at, size in sorted(records, key=lambda record: (record[1] > SHORT_BYTES, -record[0])):
        if size <= RECORD_BYTES and left > 0 and len(chosen_records) < FILE_RECORDS:
            left -= size
            chosen_records.append((at, size))
    return chosen_records


class EventMetrics:
    """Of one host. Names are `FOLDER/TAG`: see event_folders.py."""

    def __init__(self, paths: RunPaths, part: wire.HostPart) -> None:
        self._folders = EventFolders(paths, part)
        self._files: Dict[str, EventFile] = {}
        self._looks = 0
        self._told = 0
        self.scalars: Dict[str, Scalar] = {}  # name -> the newest
        self._priorities: Dict[str, int] = {}

    @property
    def known(self) -> Dict[str, float]:
        return {name: each.value for name, each in self.scalars.items()}

    def read_new_values(self) -> Dict[str, float]:
        """The newest value of each metric; without those that were not written since the last
        look."""
        began = time.process_time()
        self._looks += 1
        at = self._folders.find_files()
        self._files = {path: self._files.get(path) or EventFile() for path in at}
        read: List[Tuple[int, str, Dict[str, Written]]] = []
        for path in self._grown(at):
            if read and time.process_time() - began > LOOK_CPU_S:
                break
            self._files[path].looked = self._looks
            read.append((at[path].born, path, self._read(path)))
        figures: Dict[str, float] = {}
        # a later attempt's file has the last word
        for _, path, values in sorted(read, key=lambda each: each[:2]):
            for tag, written in values.items():
                name = "%s/%s" % (at[path].name, tag)
                if len(name) <= MOST_NAME_CHARS and self._make_room(name):
                    figures[name] = written[0]
                    self.scalars[name] = Scalar(at[path].name, tag, *written)
        return {name: value for name, value in figures.items() if name in self.scalars}

    def _make_room(self, name: str) -> bool:
        """Return True if the metric is kept. It takes the place of one that readers want less,
        where there are MOST_METRICS."""
        if name in self._priorities:
            return True
        own = priority(name)
        if len(self._priorities) >= MOST_METRICS:
            last = max(self._priorities, key=self._priorities.__getitem__)
            if own >= self._priorities[last]:
                return False
            del self._priorities[last], self.scalars[last]
        self._priorities[name] = own
        return True

    def _grown(self, at: Dict[str, FoundEventFile]) -> List[str]:
        """Those that were read longest ago first."""
        grown = [path for path in at if self._files[path].grown(path, at[path].inode)]
        return sorted(grown, key=lambda path: (self._files[path].looked, at[path].born, path))

    def _read(self, path: str) -> Dict[str, Written]:
        file = self._files[path]
        before = file.damaged
        scalars = file.read()
        if file.damaged and not before and self._told < MOST_TOLD:
            self._told += 1
            # the minder's log
            sys.stderr.write("event file %r: damaged records are left out\n" % path)
            sys.stderr.flush()
        return scalars
