"""Record which pieces of a broadcast this host has, and check pieces against their hashes. A piece
is a small part of the sent files. All threads of this host that take part in the broadcast share
one Holdings object.

A segment is a group of pieces. The leaves of a segment are the hashes of its pieces; the root of a
segment is the hash of its leaves. Other hosts of the broadcast send pieces and leaves. They are
accepted only if they match the root, because the root comes from the control machine, over this
host's own SSH session.
"""

from __future__ import annotations

import threading
import time
from functools import lru_cache

from tfdeploy.agent import pieces
from tfdeploy.agent.annotations import Callable, Dict, List, Set, Tuple, Union
from tfdeploy.agent.broadcast.offered_files import OfferedFiles
from tfdeploy.agent.broadcast.piece_files import PieceFiles
from tfdeploy.agent.pieces import Pieces

# The longest wait for the root hash of a segment, which arrives over the SSH session.
ROOT_TIMEOUT_S = 60.0
KEPT_SEGMENTS = 8  # the lists of pieces of this many segments are cached


class WrongHash(ValueError):
    """Received content does not match its hash, or this host lacks the hash for the check."""


class BroadcastEnded(Exception):
    """The broadcast has ended on this host."""


class Holdings:
    def __init__(self, cut: Pieces, files: Union[PieceFiles, OfferedFiles]) -> None:
        self.cut, self._files = cut, files
        self._changed = threading.Condition()
        self._roots: Dict[int, bytes] = {}
        # segment -> the hashes of its pieces (leaves). When a segment is added to this dict, this
        # host begins to search its own files for the pieces of the segment.
        self.leaves: Dict[int, bytes] = {}
        # The segments whose leaves are known, in the order of arrival. The list only grows.
        self.arrived_segments: List[int] = []
        # The bitmap of the pieces that this host has, for each segment.
        self.held: List[int] = [0] * cut.segment_count
        # segment -> True while this host searches its files for the pieces of the segment
        self._searching: Dict[int, bool] = {}
        self._writing: Set[Tuple[int, int]] = set()
        # A function: number of a segment -> list of its pieces. It caches the last KEPT_SEGMENTS
        # lists.
        self.pieces_of = lru_cache(KEPT_SEGMENTS)(cut.segment)
        self._listeners: List[Callable[[], None]] = []
        self.have_bytes = 0
        self.have_by_stripe = [0]
        self.received_bytes = 0
        self.ended = False

    # --- hashes of segments

    def add_root_hashes(self, first_segment: int, roots: List[bytes]) -> None:
        with self._changed:
            self._roots.update(enumerate(roots, first_segment))
            self._changed.notify_all()

    def root_hash(self, segment: int) -> bytes:
        """Wait until the root hash of the segment has arrived, and return it. Raises WrongHash if
        the root hash does not arrive within ROOT_TIMEOUT_S, and BroadcastEnded if the broadcast
        ends first."""
        deadline = time.monotonic() + ROOT_TIMEOUT_S
        with self._changed:
            while segment not in self._roots:
                left_s = deadline - time.monotonic()
                if self.ended:
                    raise BroadcastEnded()
                if left_s <= 0 or not 0 <= segment < self.cut.segment_count:
                    raise WrongHash("the root hash of segment %d did not arrive" % segment)
                self._changed.wait(left_s)
            return self._roots[segment]

    def accept_leaves(self, segment: int, leaves: bytes, *, has_all_pieces: bool = False) -> None:
        """Accept the leaves (the hashes of the pieces) of a segment, and then search this host's
        files for these pieces. `has_all_pieces`: True if the leaves were computed from this host's
        own files. Then this host has all pieces, and the search is left out.

        Other threads may send the leaves on to other hosts before the search ends. So all hosts
        search their files at the same time. Raises WrongHash, BroadcastEnded, OSError.
        """
        if (
            pieces.hash_leaves(leaves) != self.root_hash(segment)
            or len(leaves) != self.cut.count_pieces(segment) * pieces.LEAF_BYTES
        ):
            raise WrongHash(
                "the hashes of the pieces of segment %d do not match the root hash" % segment
            )
        with self._changed:
            while self._searching.get(segment):
                self._changed.wait(1.0)
            if segment in self.leaves:
                return
            self._searching[segment] = True
            self.leaves[segment] = leaves
            self.arrived_segments.append(segment)
        self._notify_listeners()
        try:
            held_pieces = (
                self.cut.full_bitmap(segment)
                if has_all_pieces
                else self._files.find_pieces_bitmap(self.pieces_of(segment), leaves)
            )
            with self._changed:
                for index in pieces.marked_numbers(held_pieces):
                    self._add_piece(segment, index)
        finally:
            with self._changed:
                self._searching[segment] = False
                self._changed.notify_all()
        self._notify_listeners()

    def compute_leaves(self, segment: int) -> bytes:
        """Return the leaves of a segment (the hashes of its pieces), computed from this host's
        files. Raises OSError."""
        return b"".join(
            [pieces.hash_piece(self._files.read(piece)) for piece in self.pieces_of(segment)]
        )

    # --- pieces that this host has

    def lacking_bitmap(self, segment: int) -> int:
        """Return the bitmap of the segment's pieces that this host lacks."""
        return self.cut.full_bitmap(segment) & ~self.held[segment]

    def store_piece(self, segment: int, index: int, content: memoryview) -> None:
        """Check a received piece and write it. A piece that this host already has is dropped.
        Raises WrongHash, OSError."""
        leaves = self.leaves.get(segment)
        if leaves is None or not 0 <= index < self.cut.count_pieces(segment):
            raise WrongHash("piece %d of segment %d was not requested" % (index, segment))
        piece = self.pieces_of(segment)[index]
        if len(content) != pieces.piece_bytes(piece) or pieces.hash_piece(
            content
        ) != pieces.leaf_at(leaves, index):
            raise WrongHash(
                "the content of piece %d of segment %d does not match its hash" % (index, segment)
            )
        with self._changed:
            self.received_bytes += len(content)
            if self.held[segment] >> index & 1 or (segment, index) in self._writing:
                return
            self._writing.add((segment, index))
        try:
            self._files.write(piece, content)
            with self._changed:
                self._add_piece(segment, index)
        finally:
            with self._changed:
                self._writing.discard((segment, index))
        self._notify_listeners()

    def set_stripes(self, stripe_count: int) -> None:
        """Set the number of stripes, which are the parts of the data that may come from different
        hosts. The number must not change after the first piece has arrived."""
        with self._changed:
            if len(self.have_by_stripe) != stripe_count:
                self.have_by_stripe = [0] * stripe_count

    def _add_piece(self, segment: int, index: int) -> None:
        count = pieces.piece_bytes(self.pieces_of(segment)[index])
        self.held[segment] |= 1 << index
        self.have_bytes += count
        self.have_by_stripe[(segment * pieces.SEGMENT + index) % len(self.have_by_stripe)] += count

    def read(self, segment: int, index: int) -> bytes:
        """Return the content of a piece. Raises OSError."""
        return self._files.read(self.pieces_of(segment)[index])

    @property
    def is_complete(self) -> bool:
        return self.have_bytes == self.cut.total_bytes

    # --- callbacks, which are called after each change

    def add_listener(self, on_change: Callable[[], None]) -> None:
        """Register a callback. Any thread that changes this object calls the callback after the
        change, so the callback must not block."""
        with self._changed:
            self._listeners.append(on_change)

    def remove_listener(self, on_change: Callable[[], None]) -> None:
        with self._changed:
            if on_change in self._listeners:
                self._listeners.remove(on_change)

    def end_broadcast(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify_all()
        self._files.close()
        self._notify_listeners()

    def _notify_listeners(self) -> None:
        with self._changed:
            listeners = list(self._listeners)
        for each in listeners:
            each()
