"""Test the charts of a report. The axes have round numbers, peaks stay visible when points are left
out, a single point is drawn, and attempts of tasks are drawn as bars.
"""

from __future__ import annotations

import pytest

from tfdeploy.model.report.run_report import Attempt, Chart, ChartLine
from tfdeploy.ui.report.charts import (
    COLOURS,
    MOST_POINTS,
    draw_chart,
    draw_timeline,
    thin_out,
    ticks,
)


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0, 10, [0, 5, 10]),
        (0, 1, [0, 0.5, 1]),
        (0, 87, [0, 50]),
        (-3, 3, [-2, 0, 2]),
        (1e-7, 3e-7, [1e-7, 2e-7, 3e-7]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, wanted: list[float]) -> None:
    assert ticks(low, high, 4) == pytest.approx(wanted) or set(wanted) <= {
        round(tick, 12) for tick in ticks(low, high, 4)
    }


def test_peaks_remain_if_points_are_dropped() -> None:
    piece = [(float(n), 100.0 if n == 4321 else -50.0 if n == 77 else 1.0) for n in range(10_000)]
    kept = list(thin_out(piece))
    assert len(kept) <= MOST_POINTS + 2 and {100.0, -50.0} <= {value for _, value in kept}
    assert [time for time, _ in kept] == sorted(time for time, _ in kept)


def test_single_point_is_dot_and_constant_is_line() -> None:
    assert "<circle" in draw_chart(
        Chart("loss", "", (ChartLine("worker:0", (((5.0, 0.5),),)),)), 10
    )
    flat = draw_chart(Chart("loss", "", (ChartLine("worker:0", (((5.0, 0.5), (6.0, 0.5)),)),)), 10)
    assert "<polyline" in flat and "nan" not in flat


def test_each_attempt_is_separate_line_and_many_curves_share_colour() -> None:
    line = ChartLine("worker:0", (((0.0, 1.0), (1.0, 2.0)), ((5.0, 1.0), (6.0, 2.0))))
    assert draw_chart(Chart("loss", "", (line,)), 10).count("<polyline") == 2
    many = draw_chart(
        Chart("loss", "", tuple(ChartLine(f"worker:{n}", line.pieces) for n in range(COLOURS + 1))),
        10,
    )
    assert 'class="line many"' in many and "9 curves" in many


def test_each_attempt_has_bar() -> None:
    bars = draw_timeline(
        [
            Attempt(
                task="worker:0",
                number=1,
                started=1000.0,
                ended=1010.0,
                outcome="failed",
                exit_code=9,
                reason="out of memory",
            ),
            Attempt(task="worker:0", number=2, started=1012.0, ended=None, outcome=None),
            Attempt(task="ps:0", number=1, started=1000.0, ended=1020.0, outcome="gave_up"),
        ],
        1000.0,
        1020.0,
    )
    assert (
        bars.count("<rect") == 3
        and "worker:0, attempt 1: failed: 9 after 10 s: out of memory" in bars
    )
    assert "ps:0, attempt 1: gave up after 20 s" in bars
    assert bars.count('class="bar going"') == 1 and draw_timeline([], 0.0, 1.0) == ""
