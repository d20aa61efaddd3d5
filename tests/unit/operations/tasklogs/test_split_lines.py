"""Test that a log is split into the same lines, in whatever chunks the log arrives."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.model.loglines import Batch, LogLine, lines_of
from tfdeploy.operations.tasklogs.split_lines import MAX_LINE_BYTES, LineSplitter

CHUNKS = st.lists(
    st.tuples(st.sampled_from([0, 1]), st.binary(min_size=1, max_size=12)), max_size=20
)


def lines(*batches: Iterable[Batch]) -> list[LogLine]:
    return [line for batch in chain(*batches) for line in lines_of(batch)]


def split(chunks: list[tuple[int, bytes]], attempt: int = 1) -> list[tuple[str, bytes, int]]:
    splitter, offset, collected = LineSplitter("worker:0", "n1"), 0, []
    for number, (stream, chunk) in enumerate(chunks):
        collected += lines(splitter.feed(offset, [[0, float(number), stream, attempt]], chunk))
        offset += len(chunk)
    collected += lines(splitter.take_unfinished_lines())
    return [(line.stream, line.line, line.offset) for line in collected]


@given(CHUNKS)
def test_each_stream_is_split_separately_for_any_chunks(
    chunks: list[tuple[int, bytes]],
) -> None:
    parts = split(chunks)
    for stream, name in ((0, "out"), (1, "err")):
        whole = b"".join(chunk for chunk_stream, chunk in chunks if chunk_stream == stream)
        expected = whole.split(b"\n")
        if not expected[-1]:
            expected.pop()
        assert [line for line_stream, line, _ in parts if line_stream == name] == expected


@given(CHUNKS)
def test_blob_with_records_gives_same_lines_as_chunks(chunks: list[tuple[int, bytes]]) -> None:
    records, blob = [], b""
    for number, (stream, chunk) in enumerate(chunks):
        records.append([len(blob), float(number), stream, 1])
        blob += chunk
    splitter = LineSplitter("worker:0", "n1")
    log_lines = lines(splitter.feed(0, records, blob), splitter.take_unfinished_lines())
    assert [(line.stream, line.line, line.offset) for line in log_lines] == split(chunks)


def test_offset_is_first_byte_of_line() -> None:
    assert split([(0, b"ab\ncd"), (0, b"e\n")]) == [("out", b"ab", 0), ("out", b"cde", 3)]


def test_new_attempt_begins_new_line() -> None:
    splitter = LineSplitter("worker:0", "n1")
    log_lines = lines(
        splitter.feed(0, [[0, 1.0, 0, 1]], b"cut o"), splitter.feed(5, [[0, 2.0, 0, 2]], b"again\n")
    )
    assert [(line.attempt, line.line) for line in log_lines] == [(1, b"cut o"), (2, b"again")]


def test_endless_line_is_cut_and_memory_is_bounded() -> None:
    splitter = LineSplitter("worker:0", "n1")
    collected = []
    for number in range(40):
        collected += lines(splitter.feed(number << 16, [[0, 1.0, 0, 1]], b"x" * (1 << 16)))
    assert [len(line.line) for line in collected] == [MAX_LINE_BYTES] * 2
    assert (
        sum(len(line.line) for line in lines(splitter.take_unfinished_lines()))
        == (40 << 16) - 2 * MAX_LINE_BYTES
    )
