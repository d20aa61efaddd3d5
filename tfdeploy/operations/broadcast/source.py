"""Read the pieces of a broadcast on this machine, and compute the checksums that identify them.

Checksums are computed segment by segment, while the first pieces are already being sent. Each piece
is compared with its checksum again when it is sent, which detects a change of the source.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Sequence

from tfdeploy.agent import pieces
from tfdeploy.agent.listing import Listing
from tfdeploy.agent.pieces import Piece, Pieces
from tfdeploy.errors import Refused


class SourceChanged(Refused):
    """A file of the source has changed since it was listed."""


class BroadcastSource:
    """The files of a broadcast, which are below the folder `root`.

    `rows`: the numbers of the rows of `listing` that describe these files.
    """

    source_host: str | None = None  # the host that has the files; None: this machine

    def __init__(self, root: str, listing: Listing, rows: Sequence[int]) -> None:
        self._root, self._listing, self._rows = os.fsencode(root), listing, rows
        self.cut = Pieces(array("Q", (listing.sizes[row] for row in rows)))
        self.leaves: list[bytes] = []  # checksums of the segments computed so far
        self._hashed = threading.Condition()
        self.error: Exception | None = None

    def hash_next_segment(self) -> bytes:
        """Compute the checksums of the next segment, and return their root hash.

        Raises SourceChanged.
        """
        leaves = self._read_checksums(len(self.leaves))
        with self._hashed:
            self.leaves.append(leaves)
            self._hashed.notify_all()
        return pieces.hash_leaves(leaves)

    def wait_for_hashes(self, segment: int, within_s: float) -> bytes | None:
        """Return the checksums of a segment; None if they are not known after `within_s`."""
        with self._hashed:
            if len(self.leaves) <= segment:
                self._hashed.wait(within_s)
            return self.leaves[segment] if len(self.leaves) > segment else None

    def read_checked_piece(self, segment: int, index: int, piece: Piece) -> bytes:
        """Return the content of a piece. Raise SourceChanged if its checksum differs."""
        content = self._read_piece(segment, index, piece)
        if pieces.hash_piece(content) != pieces.leaf_at(self.leaves[segment], index):
            raise self._piece_changed_error(piece)
        return content

    def _read_checksums(self, segment: int) -> bytes:
        return b"".join(
            [
                pieces.hash_piece(self._read_local_piece(piece))
                for piece in self.cut.segment(segment)
            ]
        )

    def _read_piece(self, segment: int, index: int, piece: Piece) -> bytes:
        return self._read_local_piece(piece)

    def _read_local_piece(self, piece: Piece) -> bytes:
        try:
            return pieces.read_piece(piece, self._path_of_file)
        except OSError as error:
            raise self._piece_changed_error(piece) from error

    def _path_of_file(self, file_number: int) -> bytes:
        return os.path.join(self._root, self._listing.path(self._rows[file_number]))

    def _piece_changed_error(self, piece: Piece) -> SourceChanged:
        what = f"{self._path_of_piece(piece)} changed while it was sent"
        return SourceChanged(
            what, where=os.fsdecode(self._root), next="wait until no program writes to the files"
        )

    def _path_of_piece(self, piece: Piece) -> str:
        return os.fsdecode(self._listing.path(self._rows[piece[0][0]]))
