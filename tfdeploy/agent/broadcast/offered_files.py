"""Read pieces from the files that this host offers to others. The files are never written."""

from __future__ import annotations

import os

from tfdeploy.agent import pieces
from tfdeploy.agent.annotations import List
from tfdeploy.agent.pieces import Piece


class OfferedFiles:
    """The files that this host offers. `paths`: their paths relative to `root`, in order."""

    def __init__(self, paths: List[bytes], root: str) -> None:
        self._paths = [os.path.join(os.fsencode(root), path) for path in paths]

    def close(self) -> None:
        pass

    def read(self, piece: Piece) -> bytes:
        """Return the content of a piece. Raises OSError, for example if a file is shorter than
        expected."""
        return pieces.read_piece(piece, self._paths.__getitem__)

    def find_pieces_bitmap(self, segment: List[Piece], leaves: bytes) -> int:
        """Return the bitmap of the segment's pieces whose content matches their hashes `leaves`."""
        return sum(
            1 << index
            for index, piece in enumerate(segment)
            if self._has_content(piece, pieces.leaf_at(leaves, index))
        )

    def _has_content(self, piece: Piece, leaf: bytes) -> bool:
        try:
            return pieces.hash_piece(self.read(piece)) == leaf
        except OSError:
            return False

    def write(self, piece: Piece, content: memoryview) -> None:
        raise PermissionError(1, "these files are read-only")
