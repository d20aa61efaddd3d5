"""Test that equal lines of several tasks are shown as one line. The time for which lines are held
back, and their number, are limited.

The lines of each task keep their order.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from tfdeploy.model.loglines import LogLine
from tfdeploy.text.names import expand_ranges, split_outside_brackets
from tfdeploy.ui.logs.log_folds import MOST_LINES, WINDOW_S, LineFolder


def line(text: str, worker: int = 0, time: float = 0.0) -> LogLine:
    return LogLine(
        time=time,
        task=f"worker:{worker}",
        host=f"n{worker + 1}",
        attempt=1,
        stream="out",
        line=text.encode(),
    )


def rows(lines: list[LogLine]) -> list[tuple[str, str, str]]:
    return [(log_line.task, log_line.host, log_line.line.decode()) for log_line in lines]


def test_line_of_all_tasks_is_shown_once_immediately() -> None:
    folds = LineFolder(3)
    lines = [line("epoch 1", worker) for worker in range(3)]
    assert rows(folds.arrange(lines, None)) == [("worker:[0-2]", "n[1-3]", "epoch 1")]
    assert not folds.is_holding


def test_line_of_some_tasks_waits_for_others_for_limited_time() -> None:
    folds = LineFolder(3)
    assert folds.arrange([line("a", 0), line("a", 2), line("b", 1)], 7.0) == []
    assert folds.arrange([], 7.0 + WINDOW_S) == []
    assert rows(folds.arrange([], 7.01 + WINDOW_S)) == [
        ("worker:[0,2]", "n[1,3]", "a"),
        ("worker:1", "n2", "b"),
    ]
    # This line came too late to be folded with the equal lines before it.
    assert folds.arrange([line("a", 1)], 9.0) == []
    assert rows(folds.release_all()) == [("worker:1", "n2", "a")]


def test_line_repeated_by_one_task_is_two_lines() -> None:
    folds = LineFolder(2)
    lines = [line("a", 0), line("a", 0), line("a", 1), line("a", 1)]
    assert [row[0] for row in rows([*folds.arrange(lines, None), *folds.release_all()])] == [
        "worker:0",
        "worker:[0-1]",
        "worker:1",
    ]


def test_number_of_held_lines_is_bounded() -> None:
    folds = LineFolder(2)
    assert (
        len(folds.arrange([line(str(number)) for number in range(2 * MOST_LINES)], 1.0))
        == MOST_LINES
    )
    folds = LineFolder(2)
    assert len(folds.arrange([line(str(number) * (1 << 20)) for number in range(10)], 1.0)) > 5


SPOKEN = some.lists(
    some.tuples(some.integers(0, 3), some.sampled_from("abc"), some.floats(0, 1)), max_size=40
)


@given(SPOKEN, some.integers(1, 7))
def test_unfolded_lines_of_each_task_are_in_order(
    spoken: list[tuple[int, str, float]], size: int
) -> None:
    lines = [line(text, worker, time) for worker, text, time in spoken]
    folds, shown = LineFolder(4), []
    for start in range(0, len(lines), size):
        shown += folds.arrange(lines[start : start + size], None)
    shown += folds.release_all()
    assert not folds.is_holding
    for worker in range(4):
        lines_of_worker = [
            log_line.line
            for log_line in shown
            for part in split_outside_brackets(log_line.task)
            if f"worker:{worker}" in expand_ranges(part)
        ]
        assert lines_of_worker == [
            text.encode() for speaker, text, _ in spoken if speaker == worker
        ]
