"""Test how the recent values of a figure, such as the loss, are stored. Their number is limited,
they are in order of time, and a trend is computed for the last minutes.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.dashboard_scenes import PLAN, line, sampled, training
from support.recorded import fold_events
from tfdeploy.model.answers.samples import GpuSample, HostSample, TaskSample
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trends import MOST, RUN, Trend, Trends
from tfdeploy.model.status.task_status import Samples


def trend_of(*points: tuple[float, float]) -> Trend:
    trend = Trend()
    for point in points:
        trend.add(*point)
    return trend


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e9, 1e9)), max_size=2000))
def test_series_is_bounded_and_ordered(points: list[tuple[float, float]]) -> None:
    trend = trend_of(*points)
    assert len(trend.times) == len(trend.values) < MOST
    assert trend.times == sorted(trend.times)


def test_long_series_keeps_first_and_last_value() -> None:
    trend = trend_of(*((float(time), float(time)) for time in range(100_000)))
    assert (trend.times[0], trend.values[-1]) == (0.0, 99_999.0)
    assert len(trend.times) > MOST // 3


def test_late_values_and_non_numbers_are_ignored() -> None:
    assert trend_of((1, 5), (2, float("nan")), (0.5, 9), (3, float("inf"))).points == [(1, 5)]


def test_slope_ignores_values_before_fall() -> None:
    assert trend_of((0, 0), (10, 100)).slope(60) == 10
    # The program has restarted between the first two values.
    assert trend_of((0, 500), (10, 0), (20, 40)).slope(60) == 4
    assert trend_of((0, 0), (100, 100), (110, 200)).slope(20) == 10
    assert trend_of((0, 1)).slope(60) is None


def test_mean_of_last_points() -> None:
    assert trend_of((0, 1), (100, 3), (110, 5)).mean(20) == 4
    assert Trend().mean(20) is None


def test_older_points_are_inserted_first() -> None:
    trend = trend_of((10, 1), (11, 2))
    trend.prepend([(1, 7), (5, 8), (10.5, 9)])
    assert trend.points == [(1, 7), (5, 8), (10, 1), (11, 2)]


def test_trends_have_metrics_use_and_rate() -> None:
    progress, trends = RunProgress(PLAN), Trends()
    for event in (*training(), *sampled(), line(1035.0, "worker:0", "step 1407 loss: 0.0150")):
        fold_events(progress, [event])
        trends.update(progress, event.time)
    loss = trends.trend("worker:0", "loss")
    assert loss is not None and loss.values[0] > loss.values[-1]
    cpu, gpu = trends.trend("worker:1", "cpu"), trends.trend("worker:1", "gpu")
    assert cpu is not None and gpu is not None
    assert trends.trend("ps:0", "gpu") is None
    rate = trends.trend(RUN, "steps/s")
    assert rate is not None and rate.values[-1] == pytest.approx(70, rel=0.1)


def test_earlier_samples_of_hosts_precede_own_samples() -> None:
    progress, trends = RunProgress(PLAN), Trends()
    noted = [
        TaskSample(time=time, attempt=1, cpu=0.5, memory=7, printed={"loss": 3.0 - time})
        for time in (1.0, 2.0)
    ]
    host = [HostSample(time=1.0, gpus=[GpuSample(0, 50.0, 5, 9), GpuSample(3, 1.0, 5, 9)])]
    trends.add_past_samples(
        Samples(tasks={"worker:0": noted, "stranger:0": noted}, hosts={"n2": host}), progress
    )
    assert {name: trend.values for name, trend in trends.printed["worker:0"].items()} == {
        "loss": [2.0, 1.0]
    }
    assert {name: trend.values for name, trend in trends.used["worker:0"].items()} == {
        "cpu": [0.5, 0.5],
        "memory": [7, 7],
        "gpu": [50.0],
        "gpu memory": [5.0],
    }
    assert "stranger:0" not in trends.printed
