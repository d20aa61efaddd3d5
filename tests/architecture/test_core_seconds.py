"""Test the limit for the CPU time (in core-seconds) of one test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from support.core_seconds import LIMIT_S, MARKS_OF_HEAVY_TESTS, TestMeter

# A test that uses HEAVY_S seconds of CPU time exceeds the limit even on a slow machine, where the
# limit is much higher.
HEAVY_S = 100 * LIMIT_S


@pytest.mark.parametrize(
    ("used_s", "mark", "phase", "outcome"),
    [
        (LIMIT_S - 1, "", "call", "passed"),
        (HEAVY_S, "", "call", "failed"),
        *((HEAVY_S, mark, "call", "passed") for mark in MARKS_OF_HEAVY_TESTS),
        (HEAVY_S, "", "setup", "passed"),
    ],
)
def test_heavy_test_without_mark_fails(used_s: float, mark: str, phase: str, outcome: str) -> None:
    readings = iter((0.0, used_s))
    item = SimpleNamespace(get_closest_marker=lambda name: name == mark)
    report = SimpleNamespace(outcome="passed", passed=True, user_properties=[])
    meter = TestMeter(lambda: next(readings))
    reporting = meter.pytest_runtest_makereport(item, SimpleNamespace(when=phase))
    next(reporting)
    with pytest.raises(StopIteration):
        reporting.send(report)
    assert report.outcome == outcome and report.user_properties == [("core-seconds", used_s)]
