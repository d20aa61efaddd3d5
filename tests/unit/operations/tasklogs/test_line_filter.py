"""Test which lines of a log match a filter, and which lines around them are shown as context."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tfdeploy.model.loglines import LogLine
from tfdeploy.operations.tasklogs.line_filter import GAP, filter_batches
from tfdeploy.operations.tasklogs.task_log import LogQuery


def line(text: bytes, **fields: Any) -> LogLine:
    return LogLine(
        **{
            "time": 5.0,
            "task": "w:0",
            "host": "n1",
            "attempt": 1,
            "stream": "out",
            "line": text,
            **fields,
        }
    )


def kept_lines(batches: list[list[LogLine]], **query: Any) -> list[bytes]:
    return [
        log_line.line
        for batch in filter_batches(LogQuery(tasks=("w:0",), **query), "w:0", iter(batches))
        for log_line in batch
    ]


def any_of(*texts: bytes) -> tuple[re.Pattern[bytes], ...]:
    return tuple(map(re.compile, texts))


def test_empty_query_passes_batches_unchanged() -> None:
    batches = iter([[line(b"a")]])
    assert (
        filter_batches(LogQuery(tasks=("w:0",), last=3, context=2, gaps=True), "w:0", batches)
        is batches
    )


def test_filter_by_time_attempt_and_stream() -> None:
    batches = [[line(b"%d" % time, time=float(time))] for time in range(6)]
    assert kept_lines(batches, since=2.0, until=4.0) == [b"2", b"3", b"4"]
    batches = [[line(b"%d" % attempt, attempt=attempt)] for attempt in (1, 2, 3)]
    assert kept_lines(batches, attempts={"w:0": 2}) == [b"2"]
    assert kept_lines([[line(b"out")], [line(b"err", stream="err")]], stream="err") == [b"err"]


def test_line_matches_any_expression_and_no_excluded_one() -> None:
    batch = [[line(text) for text in (b"step 1", b"loss 2", b"step 2", b"\xff odd", b"other")]]
    assert kept_lines(batch, grep=any_of(b"step", b"loss"), exclude=any_of(b"2$", b"x")) == [
        b"step 1"
    ]
    assert kept_lines(batch, exclude=any_of(b"step", b"loss")) == [b"\xff odd", b"other"]
    assert kept_lines(batch, grep=any_of(b"\xff")) == [b"\xff odd"]


def test_context_lines_match_those_of_grep() -> None:
    batches = [[line(b"%d" % number)] for number in range(20)]
    matching = kept_lines(batches, grep=any_of(b"^(3|5|12)$"), context=2, gaps=True)
    assert matching == [
        *(b"%d" % number for number in range(1, 8)),
        GAP,
        *(b"%d" % number for number in range(10, 15)),
    ]


TEXTS = some.lists(some.sampled_from([b"hit", b"a", b"b"]), max_size=60)


@given(TEXTS, some.integers(1, 4), some.integers(1, 9))
def test_context_has_all_lines_within_distance(texts: list[bytes], count: int, size: int) -> None:
    lines = [line(text, offset=number) for number, text in enumerate(texts)]
    batches = [lines[start : start + size] for start in range(0, len(lines), size)]
    query = LogQuery(tasks=("w:0",), grep=any_of(b"hit"), context=count, gaps=True)
    shown = [
        log_line for batch in filter_batches(query, "w:0", iter(batches)) for log_line in batch
    ]
    hits = [number for number, text in enumerate(texts) if text == b"hit"]
    near = [
        number for number in range(len(texts)) if any(abs(number - hit) <= count for hit in hits)
    ]
    assert [log_line.offset for log_line in shown if log_line.line != GAP] == near
    assert sum(log_line.line == GAP for log_line in shown) == sum(
        after - before > 1 for before, after in pairwise(near)
    )


def test_lines_held_for_later_match_are_bounded_in_bytes() -> None:
    lines = [[line(b"%d" % number + b"x" * (1 << 20))] for number in range(50)]
    matching = kept_lines([*lines, [line(b"hit")]], grep=any_of(b"^hit"), context=1000)
    assert 5 < len(matching) < 10 and matching[-1] == b"hit"


SLOW = """import re, sys
from tfdeploy.model.loglines import LogLine
from tfdeploy.operations.tasklogs.line_filter import filter_batches
from tfdeploy.operations.tasklogs.task_log import LogQuery
batch = [LogLine(1.0, "w:0", "n1", 1, "out", b"a" * 60 + b"!")]
print("looking", flush=True)
list(filter_batches(LogQuery(tasks=("w:0",), grep=(re.compile(rb"(a+)+$"),)), "w:0", iter([batch])))
"""


def test_ctrl_c_ends_endless_expression() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as looking:
        assert looking.stdout is not None
        assert looking.stdout.readline() == b"looking\n"
        with pytest.raises(subprocess.TimeoutExpired):
            looking.wait(0.5)
        os.kill(looking.pid, signal.SIGINT)
        _, errors = looking.communicate(timeout=120)
        assert b"KeyboardInterrupt" in errors
