"""Test how files are cut into pieces. Each byte is in exactly one piece, and a small file is never
divided. The pieces of a segment are the same whether or not earlier segments were computed.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent import pieces
from tfdeploy.agent.pieces import PIECE_BYTES, SEGMENT, Pieces

sizes = st.lists(
    st.one_of(
        st.integers(0, 2000), st.integers(0, 3 * PIECE_BYTES), st.just(70 * SEGMENT * PIECE_BYTES)
    ),
    max_size=30,
)


@given(sizes)
def test_each_byte_is_in_one_piece(sizes: list[int]) -> None:
    cut = Pieces(sizes)
    at = [0] * len(sizes)
    count = 0
    for number in range(cut.segment_count):
        found = cut.segment(number)
        assert len(found) == cut.count_pieces(number) <= SEGMENT
        for piece in found:
            count += 1
            assert 0 < pieces.piece_bytes(piece) <= PIECE_BYTES
            for file, offset, length in piece:
                assert offset == at[file] and length > 0
                at[file] += length
                # Small files are not divided.
                assert len(piece) == 1 or (offset == 0 and length == sizes[file])
    assert at == sizes and count == cut.count and sum(sizes) == cut.total_bytes


def test_a_large_file_begins_a_piece() -> None:
    cut = Pieces([10, PIECE_BYTES + 1, 20, 30])
    collected = [list(piece) for piece in cut.segment(0)]
    assert collected == [
        [(0, 0, 10)],
        [(1, 0, PIECE_BYTES)],
        [(1, PIECE_BYTES, 1)],
        [(2, 0, 20), (3, 0, 30)],
    ]


def test_sums() -> None:
    leaves = pieces.hash_piece(b"a") + pieces.hash_piece(b"b")
    assert pieces.leaf_at(leaves, 1) == pieces.hash_piece(b"b")
    assert pieces.hash_leaves(leaves) != pieces.hash_leaves(
        pieces.hash_piece(b"b") + pieces.hash_piece(b"a")
    )


@given(st.sets(st.integers(0, 255)))
def test_numbers_of_a_bitmap(places: set[int]) -> None:
    assert list(pieces.marked_numbers(sum(1 << place for place in places))) == sorted(places)
