"""Test that a line of a task is searched for metrics in bounded time, whatever regular expressions
a job has.
"""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Callable

import pytest

from tfdeploy.agent import metric_reader
from tfdeploy.agent.metric_lines import MATCHED_CHARS
from tfdeploy.agent.metric_reader import (
    BURST_CPU_S,
    TASKS_STOPPED,
    CpuLimitReached,
    MetricPatterns,
    MetricReader,
    call_with_cpu_limit,
    compile_patterns,
)
from tfdeploy.model.job import DEFAULT_METRICS

ENDLESS = re.compile(r"(a+)+$")
STEP = re.compile(r"step (\d+)")
LINES = ["step 7", "a" * 40 + "b"]


def possible(name: str, value: float) -> bool:
    return True


def cpu_s(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def test_a_pattern_that_does_not_end_is_stopped_and_named_and_the_others_are_read() -> None:
    reader = MetricReader(MetricPatterns({"bad": ENDLESS, "step": STEP}))
    assert reader.stopped_metrics == []
    assert cpu_s(lambda: reader.find_metrics(LINES, possible)) < 0.5
    assert reader.stopped_metrics == ["bad"]
    assert reader.find_metrics(["1/2 - loss: 0.5", *LINES], possible) == {
        "step": 7,
        "batch": 1,
        "batches": 2,
        "loss": 0.5,
    }
    assert min(cpu_s(lambda: reader.find_metrics(LINES, possible)) for _ in range(3)) < 0.01


def test_what_costs_too_much_in_all_is_stopped_too() -> None:
    reader = MetricReader(MetricPatterns({"step": STEP, "slow": re.compile(r"\d+ *\d+ *\d*x(\d)")}))
    used_s = cpu_s(lambda: [reader.find_metrics(["1" * 60], possible) for _ in range(5000)])
    assert reader.stopped_metrics == ["slow"] and used_s < 2 * BURST_CPU_S


def test_a_log_that_is_read_from_its_beginning_stops_no_pattern_that_is_cheap() -> None:
    reader = MetricReader(MetricPatterns({"step": STEP}))
    steps = [reader.find_metrics([f"step {step} loss: 0.5"] * 16, possible) for step in range(500)]
    assert steps[-1] == {"step": 499} and reader.stopped_metrics == []


def test_cheap_patterns_are_not_stopped_if_there_are_too_many_lines() -> None:
    reader = MetricReader(MetricPatterns({"step": STEP}))
    used_s = cpu_s(lambda: [reader.find_metrics(["x" * 500] * 400, possible) for _ in range(1000)])
    assert used_s < 2 * BURST_CPU_S and reader.stopped_metrics == []


def test_patterns_of_tfdeploy_itself_are_never_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every pattern seems to take too long.
    monkeypatch.setattr(metric_reader, "CALL_CPU_S", 0.0)
    monkeypatch.setattr(metric_reader, "LINE_CPU_S", 0.0)
    reader = MetricReader(compile_patterns({**DEFAULT_METRICS, "job's": r"epoch (\d+)"}))
    metrics = reader.find_metrics(["step 7 epoch 3"], possible)
    assert metrics == {"step": 7, "job's": 3} and reader.stopped_metrics == ["job's"]


def test_a_pattern_that_was_stopped_for_some_tasks_is_stopped_for_all() -> None:
    patterns = MetricPatterns({"bad": ENDLESS, "step": STEP})
    readers = [MetricReader(patterns) for _ in range(TASKS_STOPPED + 200)]
    assert cpu_s(lambda: [reader.find_metrics(LINES, possible) for reader in readers]) < 0.5
    assert all(reader.stopped_metrics == ["bad"] for reader in readers)


def test_the_cpu_time_of_other_threads_does_not_count() -> None:
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(range(1000))

    others = [threading.Thread(target=compute) for _ in range(2)]
    for thread in others:
        thread.start()
    done: list[int] = []

    def work() -> None:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        done.append(1)

    try:
        call_with_cpu_limit(0.2, work)
        with pytest.raises(CpuLimitReached):
            call_with_cpu_limit(0.005, work)
    finally:
        ended.set()
        for thread in others:
            thread.join()
    assert done == [1]


def test_no_garbage_is_collected_meanwhile_because_a_finalizer_would_lose_the_interrupt() -> None:
    collected = []

    class Finalized:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            collected.append(True)

    def work() -> None:
        Finalized()
        several = [[] for _ in range(3 * gc.get_threshold()[0])]  # type: ignore[var-annotated]
        assert several and not collected

    gc.collect()
    metric_reader.call_with_cpu_limit(1.0, work)
    assert gc.isenabled()
    gc.collect()
    assert collected


def test_a_line_is_looked_at_up_to_a_bound_and_no_number_is_cut() -> None:
    reader = MetricReader(MetricPatterns({"step": STEP}))
    line = "step 1234".rjust(MATCHED_CHARS - 2 + len("34"))
    assert reader.find_metrics([line], possible) == {"step": 1234}
    assert reader.find_metrics([line + "5"], possible) == {}
    assert reader.find_metrics([line + " more"], possible) == {"step": 1234}
    assert reader.find_metrics([" " * MATCHED_CHARS + "step 5"], possible) == {}


def test_the_bound_is_small() -> None:
    assert metric_reader.SECOND_CPU_S <= 0.02


def test_a_pattern_that_does_not_end_is_stopped_among_many_lines_too() -> None:
    reader = MetricReader(MetricPatterns({"bad": ENDLESS, "step": STEP}))
    assert cpu_s(lambda: reader.find_metrics([*LINES, *["x"] * 254], possible)) < 0.5
    assert reader.stopped_metrics == ["bad"]
