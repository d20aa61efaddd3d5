"""Test that tfdeploy reads a log that `fetch` has copied to this machine in the same way as a log
on a host. The times, streams and attempts of the lines are known in both cases.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tfdeploy.errors import AgentError, BadAnswer, HostUnreachable
from tfdeploy.model.loglines import LogLine, lines_of
from tfdeploy.operations.tasklogs import fetched_logs
from tfdeploy.operations.tasklogs.fetched_logs import FetchedLogs
from tfdeploy.operations.tasklogs.log_times import RECORD, pack_time_records, times_name

OFF = HostUnreachable("gives no answer", where="n1")


def read(folder: Path) -> list[LogLine]:
    batches = FetchedLogs(folder).read_fetched_lines("worker:0", "n1", OFF)
    assert batches is not None
    return [line for batch in batches for line in lines_of(batch)]


def test_lines_have_times_of_their_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [
        (0, [(0, 1.0, 0, 1), (6, 2.0, 1, 1)], b"out 1\nerr 1\n"),
        (12, [(0, 3.0, 0, 2)], b"out 2\nnot end"),
    ]
    # After the log was removed on this machine, a second fetch began from the start of the log and
    # was interrupted.
    second_fetch = pack_time_records(0, [(0, 1.0, 0, 1)], 6)
    times = b"".join(
        pack_time_records(offset, records, len(blob)) for offset, records, blob in pieces
    )
    (tmp_path / times_name("worker:0", "n1")).write_bytes(times + second_fetch + b"half")
    (tmp_path / "worker-0@n1.log").write_bytes(b"".join(blob for *_, blob in pieces))
    (tmp_path / "worker-0@n1.from-1000.log").write_bytes(b"after a gap\n")
    (tmp_path / "worker-0@n12.log").write_bytes(b"of another host\n")
    wanted = [
        (1.0, "out", 1, b"out 1"),
        (2.0, "err", 1, b"err 1"),
        (3.0, "out", 2, b"out 2"),
        (3.0, "out", 2, b"not end"),
    ]
    for block in (1 << 18, 5, 1):
        monkeypatch.setattr(fetched_logs, "_BLOCK_BYTES", block)
        collected = [(line.time, line.stream, line.attempt, line.line) for line in read(tmp_path)]
        assert collected == [*wanted, (3.0, "out", 2, b"after a gap")], block


def test_damaged_times_are_tolerated(tmp_path: Path) -> None:
    (tmp_path / "worker-0@n1.log").write_bytes(b"a\nb\n" * 100)
    odd = RECORD.pack(0, float("nan"), 0, 1), RECORD.pack(2, 1e300, 0, 1), RECORD.pack(2, 1.0, 7, 1)
    for times in (
        *odd,
        os.urandom(4000),
        b"\xff" * 4000,
        b"x",
        pack_time_records(0, [(0, 1.0, 0, 1)], 9)[:7] + pack_time_records(0, [(2, 5.0, 0, 1)], 9),
    ):
        (tmp_path / times_name("worker:0", "n1")).write_bytes(times)
        lines = read(tmp_path)
        assert [line.line for line in lines] == [b"a", b"b"] * 100
        assert all(0 <= line.time < 1e11 for line in lines)


def test_lines_without_times_have_time_of_file(tmp_path: Path) -> None:
    (tmp_path / "worker-0@n1.log").write_bytes(b"a\nb\n")
    os.utime(tmp_path / "worker-0@n1.log", (7.0, 7.0))
    assert [(line.time, line.line) for line in read(tmp_path)] == [(7.0, b"a"), (7.0, b"b")]


def test_fetched_log_is_used_only_if_host_cannot_send_it(tmp_path: Path) -> None:
    (tmp_path / "worker-0@n1.log").write_bytes(b"a\n")
    fetched = FetchedLogs(tmp_path)
    assert fetched.read_fetched_lines("worker:0", "n1", BadAnswer("lies", where="n1")) is None
    assert (
        fetched.read_fetched_lines("worker:1", "n1", OFF) is None and fetched.replaced_hosts == {}
    )
    assert FetchedLogs(tmp_path / "none").read_fetched_lines("worker:0", "n1", OFF) is None
    unknown_run = AgentError("this host knows no run r1", code="unknown_run")
    assert fetched.read_fetched_lines(
        "worker:0", "n1", unknown_run
    ) is not None and fetched.replaced_hosts == {"n1": unknown_run}


@given(
    some.lists(
        some.tuples(
            some.integers(0, 50),
            some.floats(0, 1e10),
            some.integers(0, 1),
            some.integers(0, 1 << 40),
        )
    )
)
def test_each_byte_has_at_most_one_record(
    records: list[tuple[int, float, int, int]],
) -> None:
    times = pack_time_records(100, records, 20)
    assert len(times) <= 20 * RECORD.size
    offsets = [record[0] for record in RECORD.iter_unpack(times)]
    assert offsets == sorted(set(offsets)) and all(100 <= offset < 120 for offset in offsets)
