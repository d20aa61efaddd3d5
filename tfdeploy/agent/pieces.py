"""Cut the files of a broadcast into pieces, and compute the hashes of pieces. The control machine
and the hosts compute the same pieces and hashes. Only read_piece and read_extent read files; the
other functions have no side effects.

A file of at least PIECE_BYTES begins a new piece, and is cut into as many pieces as necessary.
Smaller files are not cut; several of them share one piece. SEGMENT pieces form a segment. The leaf
of a piece is its SHA-256. The root of a segment is the SHA-256 of a fixed prefix and then the
leaves of its pieces in order.
"""

from __future__ import annotations

import errno
import hashlib
import os

from tfdeploy.agent import bitmap
from tfdeploy.agent.annotations import Any, Callable, Iterator, List, Sequence, Tuple

PIECE_BYTES = 256 << 10
SEGMENT = 256  # at most this many pieces form a segment
LEAF_BYTES = 32

Extent = Tuple[int, int, int]  # number of the file, offset in the file, length in bytes
Piece = Sequence[Extent]


class PackedFiles(Sequence[Extent]):
    """A piece that consists of whole files, in order. Its extents are computed only when they are
    needed, because there may be tens of thousands of them."""

    __slots__ = ("_first", "_last", "_sizes")

    def __init__(self, sizes: Sequence[int], first: int, last: int) -> None:
        """Pack the files with the numbers `first` to `last`. The caller must choose `first` and
        `last` so that these two files are not empty."""
        self._sizes, self._first, self._last = sizes, first, last

    def __iter__(self) -> Iterator[Extent]:
        sizes = self._sizes
        return (
            (file, 0, sizes[file]) for file in range(self._first, self._last + 1) if sizes[file]
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, number: Any) -> Any:
        return (self._first, 0, self._sizes[self._first]) if number == 0 else list(self)[number]


class Pieces:
    """The pieces into which the files of a broadcast are cut. `sizes`: the sizes of the files, in
    order. The pieces themselves are not kept in memory, only the positions at which segments
    begin."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self.total_bytes = sum(sizes)
        self._starts: List[Tuple[int, int]] = []
        self.count = 0
        for number, piece in enumerate(self):
            if number % SEGMENT == 0:
                self._starts.append(piece[0][:2])
            self.count = number + 1

    def __iter__(self) -> Iterator[Piece]:
        return self._cut_from(0, 0)

    @property
    def segment_count(self) -> int:
        return len(self._starts)

    def count_pieces(self, segment: int) -> int:
        """Return how many pieces the segment has: SEGMENT, except that the last segment may have
        fewer."""
        return min(SEGMENT, self.count - segment * SEGMENT)

    def full_bitmap(self, segment: int) -> int:
        """Return the bitmap in which all pieces of the segment are marked."""
        return (1 << self.count_pieces(segment)) - 1

    def stripe_bytes(self, stripe_count: int) -> List[int]:
        """Return how many bytes each stripe has. The piece with the number p belongs to the stripe
        p % `stripe_count`."""
        totals = [0] * stripe_count
        for number, piece in enumerate(self):
            totals[number % stripe_count] += piece_bytes(piece)
        return totals

    def segment(self, segment_number: int) -> List[Piece]:
        pieces = self._cut_from(*self._starts[segment_number])
        return [next(pieces) for _ in range(self.count_pieces(segment_number))]

    def _cut_from(self, file: int, offset: int) -> Iterator[Piece]:
        # The first and the last file in the current piece of small files. `first` is -1 if no such
        # piece has begun.
        first, last = -1, -1
        free_bytes = PIECE_BYTES
        while file < len(self._sizes):
            size = self._sizes[file]
            if first >= 0 and size > free_bytes:
                yield PackedFiles(self._sizes, first, last)
                first, free_bytes = -1, PIECE_BYTES
            if size >= PIECE_BYTES:
                for start in range(offset, size, PIECE_BYTES):
                    yield [(file, start, min(PIECE_BYTES, size - start))]
            elif size:
                first, last = (file if first < 0 else first), file
                free_bytes -= size
            file, offset = file + 1, 0
        if first >= 0:
            yield PackedFiles(self._sizes, first, last)


def piece_bytes(piece: Piece) -> int:
    return sum(length for _, _, length in piece)


def hash_piece(content: "bytes | memoryview") -> bytes:
    return hashlib.sha256(content).digest()


def hash_leaves(leaves: bytes) -> bytes:
    return hashlib.sha256(b"tfdeploy segment" + leaves).digest()


def leaf_at(leaves: bytes, index: int) -> bytes:
    return leaves[index * LEAF_BYTES : (index + 1) * LEAF_BYTES]


def bitmap_bytes(segment_bitmap: int) -> bytes:
    """Return the bitmap of a segment's pieces as bytes, in the format of agent/bitmap.py."""
    return segment_bitmap.to_bytes(SEGMENT // 8, "little")


def bitmap_from(content: "bytes | memoryview") -> int:
    return int.from_bytes(content, "little")


def marked_numbers(segment_bitmap: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, in ascending order."""
    return bitmap.marked_numbers(bitmap_bytes(segment_bitmap))


def read_piece(piece: Piece, path_of: Callable[[int], bytes]) -> bytes:
    """Return the content of a piece. `path_of` returns the path of the file with that number.
    Raises OSError, for example if a file has become shorter."""
    return b"".join([read_extent(path_of(extent[0]), extent) for extent in piece])


def read_extent(path: bytes, extent: Extent) -> bytes:
    """Return the content of one extent, read from the file `path`. Raises OSError, for example if
    the file has become shorter."""
    _, offset, length = extent
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        content = b""
        while len(content) < length:
            more = os.pread(opened, length - len(content), offset + len(content))
            if not more:
                raise OSError(errno.EIO, "it has become shorter", os.fsdecode(path))
            content += more
        return content
    finally:
        os.close(opened)
