"""Test that the lines of a traceback are shown together as one block. For this, its first lines are
held back, but only for a limited time.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from tfdeploy.model.loglines import MOST_BYTES, MOST_LINES, LogLine
from tfdeploy.ui.logs.log_blocks import HOLD_S, TracebackBlocks

HEAD = "Traceback (most recent call last):"
DEATH = [
    HEAD,
    '  File "train.py", line 3, in <module>',
    "    main()",
    "ValueError: no",
    "",
    "During handling of the above exception:",
]
AGAIN = ["", HEAD, '  File "train.py", line 5', "    ^^^^", "KeyError: 1"]


def line(
    text: str, task: str = "worker:0", time: float = 0.0, stream: str = "err", attempt: int = 1
) -> LogLine:
    return LogLine(
        time=time, task=task, host="n1", attempt=attempt, stream=stream, line=text.encode()
    )


def texts(lines: list[LogLine]) -> list[str]:
    return [log_line.line.decode() for log_line in lines]


def test_lines_of_other_tasks_do_not_split_traceback() -> None:
    blocks = TracebackBlocks()
    mixed = [
        log_line
        for number, text in enumerate([*DEATH, *AGAIN])
        for log_line in (line(text, time=number / 100), line("step", "ps:0"))
    ]
    shown = texts(blocks.arrange([*mixed, line("next", time=0.2)], None))
    assert shown == ["step"] * 11 + [*DEATH, *AGAIN, "next"]
    assert not blocks.is_holding


def test_lines_of_other_stream_follow_traceback() -> None:
    blocks = TracebackBlocks()
    lines = [
        line(HEAD),
        line("step 5", stream="out"),
        line("  File"),
        line("ValueError: no"),
        line("next", time=0.1),
    ]
    assert texts(blocks.arrange(lines, None)) == [
        HEAD,
        "  File",
        "ValueError: no",
        "step 5",
        "next",
    ]


def test_traceback_lines_may_have_prefix_of_logger() -> None:
    blocks = TracebackBlocks()
    text = [f"[0] {text_line}" for text_line in DEATH[:4]]
    lines = [line(text_line, time=number / 100) for number, text_line in enumerate(text)]
    assert texts(blocks.arrange([*lines[:2], line("x", "ps:0"), *lines[2:]], None)) == ["x"]
    assert texts(blocks.release_all()) == text


def test_unfinished_block_is_released_in_time() -> None:
    blocks = TracebackBlocks()
    assert blocks.arrange([line(HEAD), line("  File")], 10.0) == []
    assert blocks.arrange([], 9.99 + HOLD_S) == [] and blocks.is_holding
    assert texts(blocks.arrange([], 10.01 + HOLD_S)) == [HEAD, "  File"]
    assert not blocks.is_holding
    # If there is no clock (None), the times of the lines are used instead.
    assert blocks.arrange([line(HEAD)], None) == []
    assert texts(blocks.arrange([line("later", "ps:0", time=0.1 + HOLD_S)], None)) == [
        HEAD,
        "later",
    ]


def test_large_block_is_released() -> None:
    blocks = TracebackBlocks()
    many = [line(HEAD), *(line(f"  {number}") for number in range(2 * MOST_LINES))]
    assert texts(blocks.arrange(many, 1.0)) == texts(many)
    long = [line(HEAD), *(line(" " * 1000) for _ in range(MOST_BYTES // 1000 + 1))]
    assert texts(blocks.arrange(long, 1.0)) == texts(long)


def test_block_ends_with_attempt() -> None:
    blocks = TracebackBlocks()
    assert texts(blocks.arrange([line(HEAD), line("  File", attempt=2)], 1.0)) == [HEAD, "  File"]


LINES = some.builds(
    line,
    some.sampled_from([HEAD, "  File", "ValueError: x", "", "step 1", "x " + HEAD]),
    some.sampled_from(["ps:0", "worker:0"]),
    some.floats(0, 2),
    some.sampled_from(["out", "err", ""]),
    some.integers(1, 2),
)


@given(some.lists(some.lists(LINES, max_size=8), max_size=8), some.booleans())
def test_no_line_is_lost_or_repeated_and_streams_keep_order(
    batches: list[list[LogLine]], live: bool
) -> None:
    numbered = [
        [
            log_line._replace(offset=100 * batch_index + index)
            for index, log_line in enumerate(batch)
        ]
        for batch_index, batch in enumerate(batches)
    ]
    blocks, shown = TracebackBlocks(), []
    for batch_index, batch in enumerate(numbered):
        shown += blocks.arrange(batch, batch_index / 5 if live else None)
    shown += blocks.release_all()
    every = [log_line for batch in numbered for log_line in batch]
    for task in ("ps:0", "worker:0"):
        for stream in ("out", "err", ""):
            assert [e for e in shown if (e.task, e.stream) == (task, stream)] == [
                e for e in every if (e.task, e.stream) == (task, stream)
            ]
