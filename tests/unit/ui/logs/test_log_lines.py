"""Test the output of `tfdeploy logs`: as text, as JSON and as raw bytes. Also test its speed, and
the order of the lines.

If the program that reads the output closes the pipe, `tfdeploy logs` ends without an error.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.stopwatch import Stopwatch
from tfdeploy.model.loglines import Batch, LogLine, lines_of
from tfdeploy.operations.tasklogs.split_lines import MAX_LINE_BYTES, LineSplitter
from tfdeploy.ui.logs.log_lines import LinePrinter

LINES = [
    LogLine(
        time=0.5, task="worker:0", host="n2", attempt=1, stream="out", line=b"step 1", offset=0
    ),
    LogLine(
        time=1.0,
        task="ps:0",
        host="n1",
        attempt=1,
        stream="err",
        line=b"odd \xff\x1b[2J\x00 [/foo]",
        offset=0,
    ),
    LogLine(
        time=1.0, task="worker:0", host="n2", attempt=2, stream="out", line=b"1/2\r2/2\r", offset=7
    ),
]


def one_by_one(lines: Iterable[LogLine]) -> Iterator[Batch]:
    return ([line] for line in lines)


def print_lines(
    lines: Any, output: Any = "text", *, batches: bool = False, **options: Any
) -> bytes:
    reader, writer = os.pipe()
    parts: list[bytes] = []

    def drain() -> None:
        while part := os.read(reader, 1 << 20):
            parts.append(part)

    thread = threading.Thread(daemon=True, target=drain)
    thread.start()
    try:
        printer = LinePrinter(writer, output, **options)
        assert printer.write(lines if batches else one_by_one(lines))
    finally:
        os.close(writer)
        thread.join()
        os.close(reader)
    return b"".join(parts)


def test_text_is_aligned_and_sanitised() -> None:
    expected = "worker:0@n2 | step 1\nps:0@n1     | odd \ufffd [/foo]\nworker:0@n2 | 2/2\n"
    assert print_lines(LINES, labels=["worker:0@n2", "ps:0@n1"]).decode() == expected


def test_wider_label_shifts_later_lines() -> None:
    assert (
        print_lines(reversed(LINES[:2])).decode()
        == "ps:0@n1 | odd \ufffd [/foo]\nworker:0@n2 | step 1\n"
    )


def test_timestamps_and_colours() -> None:
    text = print_lines(LINES[:1], timestamps=True, color=True).decode()
    assert text.startswith("1970-01-01T00:00:00.500Z \x1b[36mworker:0@n2\x1b[0m | step 1")


def test_json_is_the_contract_and_plain_ascii() -> None:
    text = print_lines(LINES, "json", run="digits-1")
    assert text.isascii()
    assert b"\x1b" not in text
    rows = [json.loads(line) for line in text.splitlines()]
    assert rows[0] == {
        "time": "1970-01-01T00:00:00.500Z",
        "run": "digits-1",
        "task": "worker:0",
        "host": "n2",
        "attempt": 1,
        "stream": "out",
        "line": "step 1",
    }
    assert rows[1]["line"] == "odd \ufffd\x1b[2J\x00 [/foo]"


def test_raw_adds_no_newline() -> None:
    written_there = b"one\ntwo without an end" + b"x" * (2 * MAX_LINE_BYTES) + b"\n\nlast \xff"
    splitter = LineSplitter("worker:0", "n1")
    lines = list(splitter.feed(0, [(0, 1.0, 0, 1)], written_there[:1000]))
    lines += [
        *splitter.feed(1000, [(0, 2.0, 0, 1)], written_there[1000:]),
        *splitter.take_unfinished_lines(),
    ]
    assert print_lines(lines, "raw", batches=True) == written_there


def test_raw_output_is_unchanged() -> None:
    assert print_lines(LINES, "raw") == b"step 1\nodd \xff\x1b[2J\x00 [/foo]\n1/2\r2/2\r\n"


def test_closed_pipe_ends_output_silently() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    endless = (LINES[0] for _ in iter(int, 1))
    assert LinePrinter(writer).write(one_by_one(endless)) is False
    os.close(writer)


def test_full_disk_raises_error_for_caller() -> None:
    with (
        Path("/dev/full").open("wb", buffering=0) as full,
        pytest.raises(OSError, match="No space left"),
    ):
        LinePrinter(full.fileno()).write(one_by_one(LINES), follow=True)


def test_followed_lines_are_printed_immediately() -> None:
    reader, writer = os.pipe()
    go_on = threading.Event()

    def slow() -> Iterator[LogLine]:
        yield LINES[0]
        go_on.wait(120)

    thread = threading.Thread(
        daemon=True,
        target=LinePrinter(writer).write,
        args=(one_by_one(slow()),),
        kwargs={"follow": True},
    )
    thread.start()
    assert os.read(reader, 100) == b"worker:0@n2 | step 1\n"
    go_on.set()
    thread.join(120)
    assert not thread.is_alive()
    os.close(reader)
    os.close(writer)


def test_order_is_kept_if_two_threads_flush() -> None:
    lines = (
        LogLine(time=0.0, task="w:0", host="n", attempt=1, stream="out", line=b"%d" % i)
        for i in range(50_000)
    )
    reader, writer = os.pipe()
    got: list[bytes] = []

    def drain() -> None:
        with os.fdopen(reader, "rb") as stream:
            got.extend(stream)

    thread = threading.Thread(daemon=True, target=drain)
    thread.start()
    LinePrinter(writer).write(one_by_one(lines), follow=True)
    os.close(writer)
    thread.join(120)
    assert [int(line.split(b"| ")[1]) for line in got] == list(range(50_000))


def test_printing_a_line_costs_less_than_twelve_plain_formattings() -> None:
    lines = [LINES[0]] * 100_000
    null = os.open(os.devnull, os.O_WRONLY)
    began = time.process_time()
    LinePrinter(null).write(one_by_one(lines))
    os.close(null)
    printing_s = time.process_time() - began
    began = time.process_time()
    for line in lines:
        f"{line.task} {line.host} {line.line.decode()} {line.stream}".encode()
    # Measurements showed that printing takes 5 to 6 times as long as this loop.
    assert printing_s < 12 * (time.process_time() - began)


def long_line_pieces(count: int, last: bytes, **fields: Any) -> list[LogLine]:
    """Return one long line, split as the line splitter splits it: `count` pieces of full length,
    and then the last piece.
    """
    common = {
        "time": 1.0,
        "task": "worker:0",
        "host": "n2",
        "attempt": 1,
        "stream": "out",
        **fields,
    }
    whole = [
        LogLine(**common, line=b"x" * MAX_LINE_BYTES, offset=number * MAX_LINE_BYTES, ended=False)
        for number in range(count)
    ]
    return [*whole, LogLine(**common, line=last, offset=count * MAX_LINE_BYTES)]


@pytest.mark.parametrize("highlight", [(), ("x{3}$",)])
def test_too_long_line_is_cut_with_count_of_remaining_bytes(
    highlight: tuple[str, ...],
) -> None:
    lines = [*long_line_pieces(3, b"end"), LINES[0]._replace(offset=MAX_LINE_BYTES * 3 + 4)]
    text = (
        print_lines(
            lines, color=bool(highlight), highlight=[re.compile(pattern) for pattern in highlight]
        )
        .decode()
        .splitlines()
    )
    assert len(text) == 3 and "x" * 1000 in text[0] and text[2].endswith("step 1")
    assert text[1].endswith(" | ... (2,097,155 more bytes)")
    assert print_lines(lines, "raw") == b"x" * (3 * MAX_LINE_BYTES) + b"end\nstep 1\n"


def test_line_of_several_pieces_is_cut_with_count_also_without_end() -> None:
    long = LINES[0]._replace(line=b"y" * (MAX_LINE_BYTES + 12345))
    assert print_lines([long]).decode().endswith("yyy... (12,345 more bytes)\n")
    assert (
        print_lines(long_line_pieces(3, b"")[:3])
        .decode()
        .endswith(" | ... (2,097,152 more bytes)\n")
    )


def test_pieces_with_gap_are_not_one_line() -> None:
    shown = print_lines(
        [*long_line_pieces(1, b"")[:1], LINES[0]._replace(offset=99 << 20)]
    ).decode()
    assert "more bytes" not in shown and shown.endswith("step 1\n")


def test_highlighting_adds_only_colour() -> None:
    lines = [
        LINES[0]._replace(line=text)
        for text in (b"loss 3.5 \x1b[2J step 1", b"\xff\xfe caf\xc3\xa9 loss 4", b"none", b"")
    ]
    patterns = [re.compile("loss [0-9.]+"), re.compile("3|1$"), re.compile("x*"), re.compile("é")]
    plain = print_lines(lines, color=True).decode()
    shown = print_lines(lines, color=True, highlight=patterns).decode()
    assert re.sub(
        "\x1b\\[(1;31)?m", "", shown.replace("\x1b[1;31m", "").replace("\x1b[0m", "")
    ) == plain.replace("\x1b[0m", "")
    assert (
        "\x1b[1;31mloss 3.5\x1b[0m  step \x1b[1;31m1\x1b[0m\n" in shown
        and "caf\x1b[1;31mé\x1b[0m" in shown
    )
    # Without colour, nothing is highlighted.
    assert print_lines(lines, highlight=patterns) == print_lines(lines)
    assert print_lines(lines, "json", highlight=patterns, color=True) == print_lines(lines, "json")


HEAD = b"Traceback (most recent call last):"


def test_traceback_is_not_split() -> None:
    torn = [
        LINES[0]._replace(line=HEAD),
        LINES[1]._replace(time=0.5),
        LINES[0]._replace(line=b"  File"),
        LINES[0]._replace(line=b"E: x"),
    ]
    assert [row.split(" | ")[0].strip() for row in print_lines(torn).decode().splitlines()] == [
        "ps:0@n1",
        *["worker:0@n2"] * 3,
    ]
    assert [json.loads(row)["task"] for row in print_lines(torn, "json").splitlines()] == [
        log_line.task for log_line in torn
    ]


def test_equal_lines_are_folded_on_request() -> None:
    lines = [
        LINES[0]._replace(task=f"worker:{number}", host=f"n{number}", line=b"epoch 1")
        for number in range(3)
    ]
    labels = [f"{log_line.task}@{log_line.host}" for log_line in lines]
    assert print_lines(lines, labels=labels, fold=True) == b"worker:[0-2]@n[0-2] | epoch 1\n"
    assert len(print_lines(lines, labels=labels).splitlines()) == 3


def test_held_back_lines_are_printed_within_one_second() -> None:
    # Lines may be held back for 1.0 s. On a busy machine, a test may see them later than that.
    assert any(seconds_until_printed() < 1.2 for _ in range(5))


def seconds_until_printed() -> float:
    reader, writer = os.pipe()
    go_on = threading.Event()

    def slow() -> Iterator[LogLine]:
        yield LINES[0]._replace(line=HEAD)
        go_on.wait(120)

    printer = LinePrinter(writer, fold=True, labels=["worker:0@n2", "ps:0@n1"])
    thread = threading.Thread(
        daemon=True, target=printer.write, args=(one_by_one(slow()),), kwargs={"follow": True}
    )
    watch = Stopwatch()
    thread.start()
    assert HEAD in os.read(reader, 1000)
    took_s = watch.seconds
    go_on.set()
    thread.join(120)
    os.close(reader)
    os.close(writer)
    return took_s


CHUNKS = (
    *(
        b"step 1 loss 0.5\n",
        b"step 2 (global step: 4)\nstep 3\n",
        b"half ",
        b"a line\n",
        b"\n",
        b"x" * 3000 + b"\n",
    ),
    *(b"odd \xff\x1b[2J\n", b"1/2\r2/2\r", "日本\n".encode(), b"y" * (1 << 20) + b"z\nafter\n"),
    *(
        b"Traceback (most recent call last):\n",
        b'  File "t.py", line 3, in f\n',
        b"    f()\n",
        b"ValueError: no\n",
    ),
)
OPTION_SETS: list[dict[str, Any]] = [
    *(
        {},
        {"output": "json"},
        {"output": "raw"},
        {"timestamps": True, "color": True},
        {"fold": True},
    ),
    {"color": True, "highlight": [re.compile("step|no")]},
]


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.sampled_from(CHUNKS)), max_size=12),
    st.sampled_from(OPTION_SETS),
)
def test_blocks_are_written_like_single_lines(
    chunks: list[tuple[int, int, bytes]], options: dict[str, Any]
) -> None:
    tasks = [LineSplitter("worker:0", "n2"), LineSplitter("ps:0", "n1")]
    batches: list[Any] = []
    for number, (task, stream, chunk) in enumerate(chunks):
        batches += tasks[task].feed(100 * number, [(0, float(number // 3), stream, 1)], chunk)
    batches += [batch for task in tasks for batch in task.take_unfinished_lines()]
    lines = [line for batch in batches for line in lines_of(batch)]
    assert print_lines(batches, batches=True, **options) == print_lines(lines, **options)


def test_closed_pipe_ends_batches_silently() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    blocks = [*LineSplitter("worker:0", "n2").feed(0, [(0, 1.0, 0, 1)], b"step 1\n" * 100_000)]
    try:
        assert not LinePrinter(writer).write(blocks * 10)
    finally:
        os.close(writer)
