"""The files of a broadcast on one host: pieces are read from them, checked against what lies there, and written.

New content grows in a staging folder beside the data set, under the same relative paths; nothing in the data set changes.
A file that this host has already is only read.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading

from tfdeploy.agent import pieces
from tfdeploy.agent.annotations import Callable, List, Optional
from tfdeploy.agent.broadcast.write_back import WriteBack
from tfdeploy.agent.pieces import Extent, Piece

_BLOCK = 4096
_ZEROS = bytes(_BLOCK)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Moved:
    """One file that the broadcast moves. `path`: relative. `lacking`: this host has to receive it. `half`: an earlier broadcast
    left some of it in the staging folder; `old`: the data set has a file at that path."""

    __slots__ = ("half", "lacking", "left", "mtime_ns", "old", "path", "size", "sparse")

    def __init__(
        self,
        path: bytes,
        size: int,
        mtime_ns: int,
        *,
        sparse: bool = False,
        lacking: bool = True,
        half: bool = False,
        old: bool = False,
    ) -> None:
        self.path, self.size, self.mtime_ns, self.sparse = path, size, mtime_ns, sparse
        self.lacking, self.half, self.old = lacking, half, old
        self.left = size  # bytes whose pieces are not here yet


class PieceFiles:
    """`old`: the folder with the content of before; `new`: the staging folder. `make_room(bytes)` is called before so many bytes
    are written, and may raise OSError."""

    def __init__(self, files: List[Moved], old: str, new: str, make_room: Callable[[int], None] = lambda count: None) -> None:
        self._files, self._make_room = files, make_room
        self._old, self._new = os.fsencode(old), os.fsencode(new)
        self._lock = threading.Lock()
        self._zero_leaf = pieces.zero_leaf()
        self._write_back = WriteBack()

    def close(self) -> None:
        self._write_back.close()

    def read(self, piece: Piece) -> bytes:
        """Raises OSError: also where a file is shorter than it should be."""
        return b"".join([self._read(self._place(self._files[extent[0]]), extent) for extent in piece])

    def find(self, piece: Piece, leaf: bytes) -> bool:
        """Whether its content lies here now: it did, in a half of before too; or it is a hole; or the old files have it at the
        same place, and it is copied."""
        moved = [self._files[extent[0]] for extent in piece]
        if not any(each.lacking for each in moved):
            return self._check_old(piece, leaf)
        if leaf == self._zero_leaf and all(each.sparse and not each.half for each in moved):
            return self._hole(piece)
        if all(each.half or not each.lacking for each in moved) and self._is(piece, self._place, leaf) is not None:
            self._count(piece)
            return True
        if all(each.old or not each.lacking for each in moved):
            content = self._is(piece, self._place_of_old, leaf)
            if content is not None:
                self.write(piece, memoryview(content))
                return True
        return False

    def _check_old(self, piece: Piece, leaf: bytes) -> bool:
        """Whether files that seemed unchanged, by size and time, are. Where not, they are received like the others."""
        if self._is(piece, self._place, leaf) is not None:
            self._count(piece)
            return True
        for file, _, _ in piece:
            moved = self._files[file]
            half = os.path.join(self._new, moved.path)
            os.makedirs(os.path.dirname(half), mode=0o700, exist_ok=True)
            try:
                shutil.copyfile(self._place(moved), half, follow_symlinks=False)
            except FileNotFoundError:
                pass  # it has gone
            moved.lacking = moved.half = True
        return False

    def _hole(self, piece: Piece) -> bool:
        """A piece of zeros in a sparse file takes no room."""
        for file, _, _ in piece:
            os.close(self._open(file))
        self._count(piece)
        return True

    def write(self, piece: Piece, content: memoryview) -> None:
        """Puts a checked piece in place. Raises OSError."""
        at = 0
        for file, offset, length in piece:
            if self._files[file].lacking:
                self._write(file, offset, content[at : at + length])
            at += length
        self._count(piece)

    # --- one file

    def _place(self, moved: Moved) -> bytes:
        return os.path.join(self._new if moved.lacking else self._old, moved.path)

    def _place_of_old(self, moved: Moved) -> bytes:
        return os.path.join(self._old, moved.path)

    def _is(self, piece: Piece, places: Callable[[Moved], bytes], leaf: bytes) -> Optional[bytes]:
        """The content that lies at these places, where it is the right one."""
        try:
            content = b"".join([self._read(places(self._files[extent[0]]), extent) for extent in piece])
        except OSError:
            return None
        return content if pieces.leaf_of(content) == leaf else None

    def _read(self, place: bytes, extent: Extent) -> bytes:
        _, offset, length = extent
        opened = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            content = os.pread(opened, length, offset)
            while len(content) < length:
                more = os.pread(opened, length - len(content), offset + len(content))
                if not more:
                    raise OSError(errno.EIO, "it is shorter by now", os.fsdecode(place))
                content += more
            return content
        finally:
            os.close(opened)

    def _write(self, file: int, offset: int, content: memoryview) -> None:
        moved = self._files[file]
        self._make_room(len(content))
        opened = self._open(file)
        try:
            for start, length in _islands(content) if moved.sparse and not moved.half else ((0, len(content)),):
                _write_all(opened, content[start : start + length], offset + start)
        finally:
            os.close(opened)

    def _open(self, file: int) -> int:
        """To be written, with its final size."""
        moved = self._files[file]
        place = self._place(moved)
        try:
            opened = os.open(place, _NEW, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            opened = os.open(place, _NEW, 0o600)
        try:
            if os.fstat(opened).st_size != moved.size:
                os.ftruncate(opened, moved.size)
        except OSError:
            os.close(opened)
            raise
        return opened

    def _count(self, piece: Piece) -> None:
        """A file whose last piece came gets its time: by that, it is known to be whole."""
        for file, _, length in piece:
            moved = self._files[file]
            with self._lock:
                moved.left -= length
                whole = moved.left == 0
            if moved.lacking:
                place = self._place(moved)
                if whole:
                    os.utime(place, ns=(moved.mtime_ns, moved.mtime_ns))
                self._write_back.wrote(place, length, whole=whole, size=moved.size)


def _islands(content: memoryview) -> "List[tuple[int, int]]":
    """(start, length) of what is not zeros, in blocks."""
    found: "List[tuple[int, int]]" = []
    for start in range(0, len(content), _BLOCK):
        block = content[start : start + _BLOCK]
        if block == _ZEROS[: len(block)]:
            continue
        if found and sum(found[-1]) == start:
            found[-1] = found[-1][0], found[-1][1] + len(block)
        else:
            found.append((start, len(block)))
    return found


def _write_all(opened: int, content: memoryview, offset: int) -> None:
    while content:
        count = os.pwrite(opened, content, offset)
        content, offset = content[count:], offset + count
