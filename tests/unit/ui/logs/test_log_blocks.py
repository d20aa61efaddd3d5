"""Test that a traceback is shown in one block, and that its lines are held back for a limited time
only.
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
    return [each.line.decode() for each in lines]


def test_lines_of_other_tasks_do_not_come_between() -> None:
    blocks = TracebackBlocks()
    mixed = [
        each
        for number, text in enumerate([*DEATH, *AGAIN])
        for each in (line(text, time=number / 100), line("step", "ps:0"))
    ]
    shown = texts(blocks.arrange([*mixed, line("next", time=0.2)], None))
    assert shown == ["step"] * 11 + [*DEATH, *AGAIN, "next"]
    assert not blocks.holding


def test_lines_of_the_same_task_on_the_other_stream_come_after_it() -> None:
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


def test_a_logger_s_prefix_may_stand_before_each_line() -> None:
    blocks = TracebackBlocks()
    text = [f"[0] {each}" for each in DEATH[:4]]
    lines = [line(each, time=number / 100) for number, each in enumerate(text)]
    assert texts(blocks.arrange([*lines[:2], line("x", "ps:0"), *lines[2:]], None)) == ["x"]
    assert texts(blocks.release_all()) == text


def test_a_block_is_let_go_in_time_though_it_has_no_end() -> None:
    blocks = TracebackBlocks()
    assert blocks.arrange([line(HEAD), line("  File")], 10.0) == []
    assert blocks.arrange([], 9.99 + HOLD_S) == [] and blocks.holding
    assert texts(blocks.arrange([], 10.01 + HOLD_S)) == [HEAD, "  File"]
    assert not blocks.holding
    # Without a clock, the times of the lines are used.
    assert blocks.arrange([line(HEAD)], None) == []
    assert texts(blocks.arrange([line("later", "ps:0", time=0.1 + HOLD_S)], None)) == [
        HEAD,
        "later",
    ]


def test_a_block_is_let_go_when_it_is_large() -> None:
    blocks = TracebackBlocks()
    many = [line(HEAD), *(line(f"  {number}") for number in range(2 * MOST_LINES))]
    assert texts(blocks.arrange(many, 1.0)) == texts(many)
    long = [line(HEAD), *(line(" " * 1000) for _ in range(MOST_BYTES // 1000 + 1))]
    assert texts(blocks.arrange(long, 1.0)) == texts(long)


def test_the_next_attempt_is_no_part_of_it() -> None:
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
def test_nothing_is_lost_or_doubled_and_streams_keep_their_order(
    batches: list[list[LogLine]], live: bool
) -> None:
    numbered = [
        [each._replace(offset=100 * at + index) for index, each in enumerate(batch)]
        for at, batch in enumerate(batches)
    ]
    blocks, shown = TracebackBlocks(), []
    for at, batch in enumerate(numbered):
        shown += blocks.arrange(batch, at / 5 if live else None)
    shown += blocks.release_all()
    every = [each for batch in numbered for each in batch]
    for task in ("ps:0", "worker:0"):
        for stream in ("out", "err", ""):
            assert [e for e in shown if (e.task, e.stream) == (task, stream)] == [
                e for e in every if (e.task, e.stream) == (task, stream)
            ]
