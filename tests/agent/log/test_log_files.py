"""Test a task's log on disk: how the log is written and rotated, what happens if the disk accepts
only a part of the bytes, and how a reader reads from any offset while the log is written.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent.log import format
from tfdeploy.agent.log.format import LogWriter
from tfdeploy.agent.log.reader import LogReader, Piece
from tfdeploy.agent.log.seek import first_offset_since, last_lines_offset


def read_all(folder: Path, offset: int = 0, limit: int = 1 << 18) -> list[Piece]:
    reader = LogReader(str(folder), offset)
    try:
        return list(iter(lambda: reader.read(limit), None))
    finally:
        reader.close()


def joined(pieces: list[Piece]) -> bytes:
    return b"".join(piece.blob for piece in pieces)


def attributed(pieces: list[Piece]) -> list[tuple[int, int, bytes]]:
    """Return the log as a list of (stream, attempt, bytes). Neighbouring chunks of the same stream
    and the same attempt are joined.
    """
    found: list[tuple[int, int, bytes]] = []
    for piece in pieces:
        ends = [int(record[0]) for record in piece.records[1:]] + [len(piece.blob)]
        assert piece.records[0][0] == 0
        for end, (start, _, stream, attempt) in zip(ends, piece.records):  # noqa: B905 - Python 3.8
            part = piece.blob[int(start) : end]
            assert part
            if found and found[-1][:2] == (stream, attempt):
                part = found.pop()[2] + part
            found.append((int(stream), int(attempt), part))
    return found


@pytest.mark.parametrize("limit", [1, 7, 1000, 1 << 18])
def test_every_byte_comes_back_with_its_stream_and_attempt(tmp_path: Path, limit: int) -> None:
    dice, now, expected = random.Random(limit), 1000.0, []
    writer = LogWriter(str(tmp_path), 1 << 20)
    for attempt in (1, 2):
        for _ in range(200):
            chunk, stream = (
                bytes(dice.choices(range(256), k=dice.randint(1, 30))),
                dice.randint(0, 1),
            )
            writer.append(chunk, stream, attempt, now)
            expected.append(Piece(0, [[0, now, stream, attempt]], chunk, 0))
            now += dice.choice([0.0, 0.001, 0.1])
    assert attributed(read_all(tmp_path, 0, limit)) == attributed(expected)
    assert writer.end == len(joined(expected))


def test_chunks_of_one_stream_within_ten_milliseconds_share_a_record(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 1 << 20)
    for stream, now in [(0, 1.0), (0, 1.009), (0, 1.011), (1, 1.011), (0, 1.012), (0, 0.5)]:
        writer.append(b"x", stream, 1, now)
    (piece,) = read_all(tmp_path)
    assert piece.records == [
        [0, 1.0, 0, 1],
        [2, 1.011, 0, 1],
        [3, 1.011, 1, 1],
        [4, 1.012, 0, 1],
        [5, 0.5, 0, 1],
    ]


def test_rotation_keeps_the_newer_half_and_says_what_is_gone(tmp_path: Path) -> None:
    writer, everything = LogWriter(str(tmp_path), 20_000), b""
    for number in range(5000):
        chunk = b"line %d\n" % number
        everything += chunk
        writer.append(chunk, 0, 1, 1.0 + number)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000
    pieces = read_all(tmp_path)
    assert pieces[0].gone == pieces[0].offset == len(everything) - len(joined(pieces)) > 0
    assert everything.endswith(joined(pieces)) and len(joined(pieces)) > 2000
    assert writer.end == len(everything)
    middle = len(everything) - 100
    assert joined(read_all(tmp_path, middle)) == everything[middle:]


def test_a_follower_loses_nothing_over_rotations(tmp_path: Path) -> None:
    writer, reader, written, got = (
        LogWriter(str(tmp_path), 10_000),
        LogReader(str(tmp_path)),
        b"",
        b"",
    )
    for number in range(3000):
        chunk = os.urandom(1 + number % 40)
        writer.append(chunk, number % 2, 1, float(number))
        written += chunk
        if number % 7 == 0:
            piece = reader.read()
            while piece is not None:
                assert piece.offset == len(got) and not piece.gone
                got += piece.blob
                piece = reader.read()
    assert got + joined(read_all(tmp_path, len(got))) == written
    reader.close()


def test_readers_beside_a_writer_that_rotates_all_the_time(tmp_path: Path) -> None:
    """Each byte that the reader gets is correct, and the reader counts the bytes that it misses."""
    pattern = bytes(range(251)) * 4000
    done = threading.Event()

    def write() -> None:
        writer, at = LogWriter(str(tmp_path), 40_000), 0
        while at < len(pattern):
            size = 1 + at % 97
            writer.append(pattern[at : at + size], at % 2, 1, time.time())
            at += size
        writer.close()
        done.set()

    thread = threading.Thread(daemon=True, target=write)
    thread.start()
    reader, at = LogReader(str(tmp_path)), 0
    while True:
        last_look = done.is_set()
        piece = reader.read(4096)
        if piece is not None:
            assert piece.offset == at + piece.gone
            assert piece.blob == pattern[piece.offset : piece.offset + len(piece.blob)]
            at = piece.offset + len(piece.blob)
        elif last_look:
            break
    thread.join()
    reader.close()
    assert at == len(pattern)


@pytest.mark.parametrize("renamed", [0, 1, 2])
def test_a_writer_that_died_while_rotating(tmp_path: Path, renamed: int) -> None:
    writer = LogWriter(str(tmp_path), 1 << 20)
    writer.append(b"a" * 500, 0, 1, 1.0)
    writer.close()
    for name in [format.INDEX, format.LOG][:renamed]:
        (tmp_path / name).rename(tmp_path / (name + format.OLD))
    assert joined(read_all(tmp_path)) == b"a" * 500
    again = LogWriter(str(tmp_path), 1 << 20)
    again.append(b"b" * 500, 1, 2, 2.0)
    again.close()
    assert attributed(read_all(tmp_path)) == [(0, 1, b"a" * 500), (1, 2, b"b" * 500)]
    assert again.end == 1000


def test_a_log_removed_under_writer_and_follower(tmp_path: Path) -> None:
    writer, reader = LogWriter(str(tmp_path), 1 << 20), LogReader(str(tmp_path))
    writer.append(b"before", 0, 1, 1.0)
    piece = reader.read()
    assert piece is not None and piece.blob == b"before"
    for path in list(tmp_path.iterdir()):
        path.unlink()
    assert reader.read() is None
    writer.append(b"after", 0, 1, 5.0)
    piece = reader.read()
    assert piece is not None and (piece.blob, piece.offset, piece.gone) == (b"after", 6, 0)
    assert [(p.blob, p.gone) for p in read_all(tmp_path)] == [(b"after", 6)]
    reader.close()


def test_a_full_disk_is_survived_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, real_write = LogWriter(str(tmp_path), 1 << 20), os.write
    writer.append(b"first ", 0, 1, 1.0)

    def full(fd: int, content: Any) -> int:
        if len(content) > 3:
            # The disk has space for three more bytes.
            return real_write(fd, content[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for number in range(100):
            writer.append(b"12345", 1, 1, 2.0 + number)
    index_bytes = (tmp_path / format.INDEX).stat().st_size
    writer.append(b"later", 0, 2, 300.0)
    assert writer.lost_bytes == 200 and writer.end == len(b"first ") + 300 + 5
    assert index_bytes <= 102 * format.RECORD.size
    assert attributed(read_all(tmp_path)) == [
        (0, 1, b"first "),
        (1, 1, b"123" * 100),
        (0, 2, b"later"),
    ]


def test_a_record_whose_bytes_were_lost_gives_way_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = LogWriter(str(tmp_path), 1 << 20), LogReader(str(tmp_path))

    def full(fd: int, content: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer.append(b"first ", 0, 1, 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for number in range(100):
            writer.append(b"lost", 1, 1, 2.0 + number)
    assert (tmp_path / format.INDEX).stat().st_size <= 2 * format.RECORD.size
    pieces = [reader.read()]
    writer.append(b"later", 0, 2, 300.0)
    pieces.append(reader.read())
    assert attributed([piece for piece in pieces if piece]) == [(0, 1, b"first "), (0, 2, b"later")]
    assert writer.lost_bytes == 400
    reader.close()


def test_a_folder_that_cannot_be_written_is_survived(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path / "missing"), 1 << 20)
    writer.append(b"12345", 0, 1, 1.0)
    assert (writer.lost_bytes, writer.end) == (5, 0)
    (tmp_path / "missing").mkdir()
    writer.append(b"now", 0, 1, 2.0)
    assert joined(read_all(tmp_path / "missing")) == b"now"


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("max_bytes", [1 << 24, 60_000])
def test_last_lines(tmp_path: Path, end: bytes, max_bytes: int) -> None:
    writer, lines = LogWriter(str(tmp_path), max_bytes), [b"line %d" % n for n in range(9000)]
    text = b"\n".join(lines) + end
    for at in range(0, len(text), 100):
        writer.append(text[at : at + 100], 0, 1, float(at))
    for count in (0, 1, 2, 100, 3000):
        got = joined(read_all(tmp_path, last_lines_offset(str(tmp_path), count)))
        assert got.splitlines() == lines[len(lines) - count :]
    assert joined(read_all(tmp_path, last_lines_offset(str(tmp_path), 10**6))) == joined(
        read_all(tmp_path)
    )


def test_last_lines_of_an_endless_line_are_bounded(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 1 << 26)
    for _ in range(20):
        writer.append(b"x" * (1 << 20), 0, 1, 1.0)
    assert 8 << 20 <= writer.end - last_lines_offset(str(tmp_path), 1) < 9 << 20


def test_since_begins_with_the_line_of_that_time(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 1 << 24)
    for number in range(1000):
        writer.append(b"be", 0, 1, 100.0 + number)
        writer.append(b"gin %d\n" % number, 0, 1, 100.5 + number)
    assert (
        joined(read_all(tmp_path, first_offset_since(str(tmp_path), 600.2))).splitlines()[0]
        == b"begin 500"
    )
    assert first_offset_since(str(tmp_path), 0.0) == 0
    assert first_offset_since(str(tmp_path), 1e9) == writer.end


def test_a_cursor_beyond_what_a_power_cut_left_goes_on_with_what_comes_next(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 1 << 20)
    writer.append(b"kept\n", 0, 1, 1.0)
    reader = LogReader(str(tmp_path), 200)
    assert reader.read() is None
    writer.append(b"after the boot\n", 0, 2, 2.0)
    piece = reader.read()
    assert piece is not None and piece.blob == b"after the boot\n"
    reader.close()
