"""Test that `logs --errors` and `logs --grep` select a traceback completely or not at all."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tfdeploy.model.loglines import LogLine
from tfdeploy.operations.tasklogs.line_filter import LineFilter
from tfdeploy.operations.tasklogs.task_log import LogQuery

FIRST = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    main()",
    "ValueError: no data",
]
CHAINED = [
    *FIRST,
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "train.py", line 5, in <module>',
    "    recover()",
    "KeyError: 'loss'",
]


def log_line(text: str, time: float, stream: str = "err", attempt: int = 1) -> LogLine:
    return LogLine(
        time=time,
        task="worker:0",
        host="n2",
        attempt=attempt,
        stream=stream,
        line=text.encode(),
    )


def select_lines(texts: list[str], **query: Any) -> list[str]:
    """Return the lines that the query selects from `texts`. The lines arrive one by one, with one
    second between them.
    """
    lines = [log_line(text, float(second)) for second, text in enumerate(texts)]
    select = LineFilter(LogQuery(tasks=("worker:0",), **query), "worker:0")
    return [chosen.line.decode() for line in lines for chosen in select([line])]


def any_of(*texts: str) -> tuple[re.Pattern[bytes], ...]:
    return tuple(re.compile(text.encode()) for text in texts)


@pytest.mark.parametrize("traceback", [FIRST, CHAINED], ids=["one", "chain"])
def test_errors_selects_whole_tracebacks(traceback: list[str]) -> None:
    assert select_lines(["step 1", *traceback, "step 2", "", "step 3"], errors=True) == traceback


def test_traceback_with_prefix_of_logger() -> None:
    lines = [f"[rank0]: {text}" for text in CHAINED]
    assert select_lines(["[rank0]: step 1", *lines, "[rank0]: step 2"], errors=True) == lines


def test_syntax_error_of_main_file() -> None:
    lines = [
        '  File "train.py", line 2',
        "    print 1",
        "    ^",
        "SyntaxError: Missing parentheses",
    ]
    assert select_lines(["loading", *lines, "bye"], errors=True) == lines


@pytest.mark.parametrize(
    "text",
    [
        "ERROR:tensorflow:no such variable",
        "2026-11-28 10:00:00,123 train CRITICAL out of data",
        "2026-11-28 10:00:00.123456: E tensorflow/core/util.cc:12] no kernel",
        "F1128 10:00:00.123456   71 cluster.cc:5] Check failed",
        "Fatal Python error: Segmentation fault",
        "train.py: error: unrecognized arguments: --lr",
        "2026-11-28 10:00:00.123456: E tensorflow/stream_executor/cuda/cuda_driver.cc:271] failed "
        "call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
        "tensorflow.python.framework.errors_impl.AbortedError: gone",
        "Segmentation fault (core dumped)",
    ],
)
def test_lines_that_report_an_error(text: str) -> None:
    assert select_lines(["step 1, error=0.1", text, "loss 2"], errors=True) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "mean squared error: 0.5",
        "W tensorflow/a.cc:1] slow",
        "0 errors",
        # TensorFlow writes these as errors on each host without a driver of CUDA, and everywhere.
        "E0000 00:00:1795343518.383044   28225 cuda_platform.cc:52] failed call to cuInit: "
        "INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)",
        "2026-11-28 10:00:00.123456: E tensorflow/stream_executor/cuda/cuda_driver.cc:271] failed "
        "call to cuInit: UNKNOWN ERROR (303)",
        "2026-11-28 10:00:00.123456: "
        "E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:477] "
        "Unable to register cuFFT factory: Attempting to register factory for plugin cuFFT",
    ],
)
def test_lines_that_report_no_error(text: str) -> None:
    assert select_lines([text], errors=True) == []


@pytest.mark.parametrize("pattern", ["Traceback", "main", "ValueError"])
def test_matching_expression_selects_whole_traceback(pattern: str) -> None:
    lines = ["step 1", *FIRST, "step 2"]
    assert select_lines(lines, grep=any_of(pattern)) == FIRST
    assert select_lines(lines, grep=any_of(pattern, "step 2")) == [*FIRST, "step 2"]
    assert select_lines(lines, grep=any_of("step")) == ["step 1", "step 2"]


def test_excluded_expression_drops_whole_traceback() -> None:
    lines = ["ERROR one", *FIRST, "ERROR two"]
    assert select_lines(lines, errors=True, exclude=any_of("no data", "two")) == ["ERROR one"]
    assert select_lines(lines, grep=any_of("File"), exclude=any_of("main")) == []
    assert select_lines(lines, errors=True, grep=any_of("no data")) == FIRST


def test_context_lines_around_errors() -> None:
    lines = [*map(str, range(5)), *FIRST, "5", "6"]
    assert select_lines(lines, errors=True, context=1) == ["4", *FIRST, "5"]


def test_heading_names_attempt_and_time() -> None:
    lines = ["step", *FIRST, "step", "ERROR", "ERROR", *FIRST]
    assert select_lines(lines, errors=True, gaps=True) == [
        "-- attempt 1, 1970-01-01T00:00:01Z",
        *FIRST,
        "-- attempt 1, 1970-01-01T00:00:06Z",
        "ERROR",
        "ERROR",
        "-- attempt 1, 1970-01-01T00:00:08Z",
        *FIRST,
    ]


def test_lines_of_other_stream_do_not_end_traceback() -> None:
    wanted = LineFilter(LogQuery(tasks=("worker:0",), errors=True), "worker:0")
    shown = []
    for second, text in enumerate(FIRST):
        shown += wanted([log_line(text, float(second))])
        shown += wanted([log_line("step", float(second), stream="out")])
    assert [chosen.line.decode() for chosen in shown] == FIRST


def test_traceback_of_next_attempt_is_separate() -> None:
    wanted = LineFilter(LogQuery(tasks=("worker:0",), errors=True, gaps=True), "worker:0")
    shown = []
    for attempt in (1, 2):
        for text in FIRST:
            shown += wanted([log_line(text, 5.0, attempt=attempt)])
    heading = "-- attempt %d, 1970-01-01T00:00:05Z"
    assert [chosen.line.decode() for chosen in shown] == [
        heading % 1,
        *FIRST,
        heading % 2,
        *FIRST,
    ]


def test_endless_traceback_is_not_held_back_endlessly() -> None:
    lines = [FIRST[0], *(f"  {number}" for number in range(3000))]
    assert select_lines(lines, grep=any_of("absent")) == []
    assert select_lines([*lines, "hit"], grep=any_of("hit"), context=1)[-1] == "hit"
