"""Read and check the pieces of a broadcast in this host's files, and write the pieces that this
host receives.

New content is written to a staging folder beside the data set, under the same relative paths. The
data set itself does not change: a file that this host already has is only read.
"""

from __future__ import annotations

import os
import shutil
import threading

from tfdeploy.agent import pieces
from tfdeploy.agent.annotations import Callable, Dict, List, Optional, Sequence, Set
from tfdeploy.agent.broadcast.write_back import WriteBack
from tfdeploy.agent.pieces import Extent, Piece

_BLOCK = 4096
# How many pieces of a file are compared with the old file first. If all of them differ, the other
# pieces are not compared.
_PROBES = 4
_ZEROS = bytes(_BLOCK)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW


class BroadcastFile:
    """One file of the broadcast. `path`: the path relative to the data set. `lacking`: True if this
    host must receive the file. `partial`: True if an earlier broadcast left part of the file in the
    staging folder. `old`: the size in bytes of the file that the data set has now at this path."""

    __slots__ = ("lacking", "mtime_ns", "old", "partial", "path", "size", "sparse")

    def __init__(
        self,
        path: bytes,
        size: int,
        mtime_ns: int,
        *,
        sparse: bool = False,
        lacking: bool = True,
        partial: bool = False,
        old: int = 0,
    ) -> None:
        self.path, self.size, self.mtime_ns, self.sparse = path, size, mtime_ns, sparse
        self.lacking, self.partial, self.old = lacking, partial, old


class PieceFiles:
    """The files of a broadcast on this host. `old`: the folder with the earlier content. `new`: the
    staging folder. `placed`: the folders to which finished files are moved while this host still
    sends them to others. `make_room(bytes)` is called before that many bytes are written, and may
    raise OSError."""

    def __init__(
        self,
        files: Sequence[BroadcastFile],
        old: str,
        new: str,
        make_room: Callable[[int], None] = lambda count: None,
        placed: Sequence[str] = (),
    ) -> None:
        self._files, self._make_room = files, make_room
        self._old, self._new = os.fsencode(old), os.fsencode(new)
        self._placed = [os.fsencode(folder) for folder in placed]
        self._lock = threading.Lock()
        # Index of a file -> how many bytes the file still lacks. Files that are complete, and files
        # without any piece, are left out.
        self._left: Dict[int, int] = {}
        # Indices of files whose size and time were right, but whose content turned out to differ.
        self._differing: Set[int] = set()
        # The hash of a piece of zeros with full length. In a sparse file, such a piece is a hole.
        self._zero_leaf = pieces.hash_piece(bytes(pieces.PIECE_BYTES))
        self._write_back = WriteBack()

    def close(self) -> None:
        self._write_back.close()

    def read(self, piece: Piece) -> bytes:
        """Return the content of a piece. Raises OSError, for example if a file is shorter than
        expected."""
        return b"".join([self._read_extent(extent) for extent in piece])

    def _read_extent(self, extent: Extent) -> bytes:
        moved = self._broadcast_file(extent[0])
        *folders, last = [self._new, *self._placed] if moved.lacking else [self._old]
        for folder in folders:
            try:
                return pieces.read_extent(folder + b"/" + moved.path, extent)
            except FileNotFoundError:
                # The file is no longer in this folder, because it was moved to its final place.
                continue
        return pieces.read_extent(last + b"/" + moved.path, extent)

    def _broadcast_file(self, file_number: int) -> BroadcastFile:
        moved = self._files[file_number]
        if file_number in self._differing:
            moved.lacking = moved.partial = True
        return moved

    def find_pieces_bitmap(self, segment: List[Piece], leaves: bytes) -> int:
        """Return the bitmap of the segment's pieces that this host already has."""
        new, present_pieces = self._find_files_that_seem_new(segment, leaves), 0
        for index, piece in enumerate(segment):
            if self._is_found_or_copied(
                piece, pieces.leaf_at(leaves, index), piece[0][0] not in new
            ):
                present_pieces |= 1 << index
        return present_pieces

    def _find_files_that_seem_new(self, segment: List[Piece], leaves: bytes) -> Set[int]:
        """Return the numbers of the files that seem to have only new content. Several pieces of
        each file, spread over the segment, are compared with the old file. If all of them differ,
        the file counts as new, and its other pieces are not compared: reading and hashing them
        would delay the first piece for all hosts."""
        of_file: Dict[int, List[int]] = {}
        for index, piece in enumerate(segment):
            moved = self._broadcast_file(piece[0][0])
            if len(piece) == 1 and moved.lacking and moved.old:
                of_file.setdefault(piece[0][0], []).append(index)
        changed = set()
        for file, indices in of_file.items():
            if len(indices) <= _PROBES:
                continue
            step = (len(indices) - 1) / (_PROBES - 1)
            probes = [indices[round(number * step)] for number in range(_PROBES)]
            if not any(
                self._content_if_hash_matches(
                    segment[each], self._old_path_of, pieces.leaf_at(leaves, each)
                )
                for each in probes
            ):
                changed.add(file)
        return changed

    def _is_found_or_copied(self, piece: Piece, leaf: bytes, may_be_in_old_file: bool) -> bool:
        """True if this host already has the piece: in a complete or partial file, as a hole in a
        sparse file, or in the old version of the file at the same position. A piece that is found
        in the old version is copied to the staging folder. If `may_be_in_old_file` is False, the
        old version is not searched."""
        moved = [self._broadcast_file(extent[0]) for extent in piece]
        is_lacking = any(each.lacking for each in moved)
        is_new_and_sparse = is_lacking and all(each.sparse and not each.partial for each in moved)
        if leaf == self._zero_leaf and is_new_and_sparse:
            # A piece of zeros becomes a hole in the sparse file, so its content need not be
            # received. `_open` creates the file with its final size, which makes the hole.
            for file, _, _ in piece:
                os.close(self._open(self._files[file]))
            self._mark_present(piece)
            return True
        if (
            all(each.partial or not each.lacking for each in moved)
            and self._content_if_hash_matches(piece, self._path_of, leaf) is not None
        ):
            self._mark_present(piece)
            return True
        if not is_lacking:
            self._copy_to_staging(piece)
            return False
        if may_be_in_old_file and all(
            not each.lacking or each.old >= extent[1] + extent[2]
            for each, extent in zip(moved, piece)  # noqa: B905 - Python 3.8 knows no strict
        ):
            content = self._content_if_hash_matches(piece, self._old_path_of, leaf)
            if content is not None:
                self.write(piece, memoryview(content))
                return True
        return False

    def _copy_to_staging(self, piece: Piece) -> None:
        """Copy to the staging folder the files of this piece whose size and time were right, but
        whose content turned out to differ. From now on, they are received like files that this host
        lacks."""
        for file, _, _ in piece:
            moved = self._broadcast_file(file)
            partial = os.path.join(self._new, moved.path)
            os.makedirs(os.path.dirname(partial), mode=0o700, exist_ok=True)
            try:
                shutil.copyfile(self._path_of(moved), partial, follow_symlinks=False)
            except FileNotFoundError:
                pass  # the file no longer exists
            self._differing.add(file)

    def write(self, piece: Piece, content: memoryview) -> None:
        """Write a piece whose hash has been checked. Raises OSError."""
        at = 0
        for file, offset, length in piece:
            moved = self._broadcast_file(file)
            if moved.lacking:
                self._write(moved, offset, content[at : at + length])
            at += length
        self._mark_present(piece)

    # --- reading and writing one file

    def _path_of(self, file: BroadcastFile) -> bytes:
        return (self._new if file.lacking else self._old) + b"/" + file.path

    def _old_path_of(self, file: BroadcastFile) -> bytes:
        return self._old + b"/" + file.path

    def _content_if_hash_matches(
        self, piece: Piece, path_of: Callable[[BroadcastFile], bytes], leaf: bytes
    ) -> Optional[bytes]:
        """Return the content of the piece, read from the file paths that `path_of` returns. Return
        None if the content cannot be read or does not match the hash `leaf`."""
        try:
            content = pieces.read_piece(piece, lambda file: path_of(self._broadcast_file(file)))
        except OSError:
            return None
        return content if pieces.hash_piece(content) == leaf else None

    def _write(self, moved: BroadcastFile, offset: int, content: memoryview) -> None:
        self._make_room(len(content))
        opened = self._open(moved)
        try:
            ranges = [(0, len(content))]
            if moved.sparse and not moved.partial:
                ranges = split_at_holes(content)
            for start, length in ranges:
                write_all(opened, content[start : start + length], offset + start)
        finally:
            os.close(opened)

    def _open(self, moved: BroadcastFile) -> int:
        """Open the file for writing, and set its final size."""
        path = self._path_of(moved)
        try:
            opened = os.open(path, _NEW, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            opened = os.open(path, _NEW, 0o600)
        try:
            if os.fstat(opened).st_size != moved.size:
                os.ftruncate(opened, moved.size)
        except OSError:
            os.close(opened)
            raise
        return opened

    def _mark_present(self, piece: Piece) -> None:
        """Mark the piece as present. If this completes a file, set the file's modification time.
        A later broadcast recognises a complete file by its size and modification time."""
        for file, _, length in piece:
            moved = self._broadcast_file(file)
            with self._lock:
                missing_bytes = self._left.pop(file, moved.size) - length
                if missing_bytes:
                    self._left[file] = missing_bytes
            whole = not missing_bytes
            if moved.lacking:
                path = self._path_of(moved)
                if whole:
                    os.utime(path, ns=(moved.mtime_ns, moved.mtime_ns))
                self._write_back.note_write(path, length, is_complete=whole, file_size=moved.size)


def split_at_holes(content: memoryview) -> "List[tuple[int, int]]":
    """Return (start, length) of each range of `content` that must be written. Blocks that contain
    only zeros are left out, because they become holes in the file."""
    islands: "List[tuple[int, int]]" = []
    for start in range(0, len(content), _BLOCK):
        block = content[start : start + _BLOCK]
        if block == _ZEROS[: len(block)]:
            continue
        if islands and sum(islands[-1]) == start:
            islands[-1] = islands[-1][0], islands[-1][1] + len(block)
        else:
            islands.append((start, len(block)))
    return islands


def write_all(opened: int, content: memoryview, offset: int) -> None:
    while content:
        count = os.pwrite(opened, content, offset)
        content, offset = content[count:], offset + count
