"""The metrics in the TensorBoard event files of a run on this host: those that were written since the last look.

A file is never read twice: where much was written, its newest part is read. What is damaged is left out, and so is what does not
fit the bounds below: a look costs some 10 ms of CPU at most, whatever lies in the files.
"""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Optional, Tuple
from tfdeploy.agent.host.file_sum import open_file
from tfdeploy.agent.sampling.event_folders import EventFolders
from tfdeploy.agent.sampling.event_record import HEAD_BYTES, TAIL_BYTES, data_length, is_whole, scalars
from tfdeploy.agent.sampling.printed import MOST_METRICS, MOST_NAME_CHARS

if TYPE_CHECKING:
    from tfdeploy.agent import wire
    from tfdeploy.agent.run.folder import RunPaths
    from tfdeploy.agent.sampling.event_folders import Found

WINDOW_BYTES = 1 << 15  # of one file, in one look: the newest
RECORD_BYTES = 1 << 16  # a larger record (images, graphs) is passed over
LOOK_BYTES, LOOK_RECORDS = 1 << 17, 512  # of all files, in one look
HOPS = 128  # over records that are not looked into
_ZEROS = bytes(5)  # in the length of every record below 16 MiB


class Budget:
    """What a look may still read."""

    def __init__(self) -> None:
        self.bytes, self.records, self.hops = LOOK_BYTES, LOOK_RECORDS, HOPS

    @property
    def spent(self) -> bool:
        return self.bytes <= 0 or self.records <= 0


class EventFile:
    """One file that grows: where the next record begins in it; where it is `lost`, that is still to be found."""

    def __init__(self) -> None:
        self.looked = 0  # number of the last look that read it
        self._path, self._at, self._size = "", 0, 0
        self._inode = (0, 0)
        self._lost = self._waits = False  # `_waits`: for the rest of a record

    def grown(self, path: str, inode: Tuple[int, int]) -> bool:
        """Whether there is more to read. A file that is smaller or another one is read from its beginning."""
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

    def read(self, budget: Budget) -> Dict[str, float]:
        """The newest value of each tag."""
        file = open_file(self._path)
        if file is None:
            return {}
        try:
            about = os.fstat(file)
            return self._read(file, about.st_size, budget) if (about.st_dev, about.st_ino) == self._inode else {}
        except OSError:
            return {}
        finally:
            os.close(file)

    def _read(self, file: int, end: int, budget: Budget) -> Dict[str, float]:
        self._pass_old(file, end, budget)
        if self._lost:
            self._search(file, end, budget)
        found: Dict[str, float] = {}
        while not self._lost and not self._waits and not budget.spent:
            data = self._next(file, end, budget)
            try:
                found.update(scalars(data) if data is not None else {})
            except ValueError:
                pass  # whole, but no Event
        return found

    def _pass_old(self, file: int, end: int, budget: Budget) -> None:
        """Goes on to the newest part where much was written."""
        while not self._lost and end - self._at > WINDOW_BYTES and budget.hops > 0:
            budget.hops -= 1
            length = self._length(file, end)
            if length is None or self._at + length >= end:
                return
            self._at += length
        if end - self._at > WINDOW_BYTES + RECORD_BYTES:
            self._at, self._lost = end - WINDOW_BYTES, True

    def _length(self, file: int, end: int) -> Optional[int]:
        """Of the whole record at `at`. None: its head is not written yet, or it is none."""
        if end - self._at < HEAD_BYTES:
            self._waits = True
            return None
        length = data_length(os.pread(file, HEAD_BYTES, self._at).ljust(HEAD_BYTES, b"\0"))
        self._lost = length is None
        return None if length is None else HEAD_BYTES + length + TAIL_BYTES

    def _next(self, file: int, end: int, budget: Budget) -> Optional[bytes]:
        """The data of the next record. None: it is not whole yet, damaged, or too large."""
        budget.records -= 1
        length = self._length(file, end)
        if length is None:
            return None
        if length > end - self._at:
            self._waits = True
            return None
        at, self._at = self._at, self._at + length
        size = length - HEAD_BYTES - TAIL_BYTES
        if size > RECORD_BYTES:
            return None
        budget.bytes -= size
        content = os.pread(file, size + TAIL_BYTES, at + HEAD_BYTES)
        data, tail = content[:size], content[size:]
        return data if len(tail) == TAIL_BYTES and is_whole(data, tail) else None

    def _search(self, file: int, end: int, budget: Budget) -> None:
        """The first head from `at` on."""
        part = os.pread(file, min(WINDOW_BYTES, end - self._at), self._at)
        zeros = part.find(_ZEROS)
        while zeros >= 0 and budget.records > 0:
            budget.records -= 1
            begin = zeros - 3  # the length's low bytes come first
            if begin >= 0 and begin + HEAD_BYTES <= len(part) and data_length(part[begin : begin + HEAD_BYTES]) is not None:
                self._at, self._lost = self._at + begin, False
                return
            zeros = part.find(_ZEROS, zeros + 1)
        self._at += max(0, len(part) - HEAD_BYTES + 1)


class EventMetrics:
    """Of one host. Names are `FOLDER/TAG`: see event_folders.py."""

    def __init__(self, paths: RunPaths, part: wire.HostPart) -> None:
        self._folders = EventFolders(paths, part)
        self._files: Dict[str, EventFile] = {}
        self._looks = 0
        self.known: Dict[str, float] = {}

    def look(self) -> Dict[str, float]:
        """The newest value of each metric; without those that were not written since the last look."""
        self._looks += 1
        at = self._folders.look()
        self._files = {path: self._files.get(path) or EventFile() for path in at}
        found: Dict[str, float] = {}
        budget = Budget()
        for path in self._grown(at):
            if budget.spent:
                break
            file = self._files[path]
            file.looked = self._looks
            for tag, value in file.read(budget).items():
                name = "%s/%s" % (at[path].name, tag)
                if len(name) <= MOST_NAME_CHARS and (name in self.known or len(self.known) < MOST_METRICS):
                    found[name] = self.known[name] = value
        return found

    def _grown(self, at: Dict[str, Found]) -> List[str]:
        """Those that were read longest ago first; among these the older one first: the newer one has the last word."""
        grown = [path for path in at if self._files[path].grown(path, at[path].inode)]
        return sorted(grown, key=lambda path: (self._files[path].looked, at[path].born, path))
