"""Test the metrics of a task that are computed from its samples, and how samples from an agent of
another version are read.
"""

from __future__ import annotations

from typing import Any

import pytest

from tfdeploy.model.answers.samples import GpuSample, TaskMetrics, TaskSample
from tfdeploy.text.typed import InvalidJsonValue, convert_untrusted


def make_sample(printed: dict[str, float], **fields: Any) -> TaskSample:
    return TaskSample(time=1.0, attempt=1, printed=printed, **fields)


def test_event_file_steps_give_rate_until_printed_steps() -> None:
    measures = TaskMetrics()
    measures.take_sample(make_sample({"step": 100}, step_time=50.0))
    measures.take_sample(make_sample({"step": 100}, step_time=50.0))
    assert measures.step == 100 and measures.steps_per_s() is None
    measures.take_sample(make_sample({"step": 300}, step_time=60.0))
    assert measures.steps_per_s(65.0) == 20
    # TensorFlow writes event files late. So an unchanged step in an event file does not mean that
    # the task is stalled.
    assert measures.steps_per_s(200.0) is None
    measures.take_sample(make_sample({"step": 500}, step_times={"step": 201.0}))
    measures.take_sample(make_sample({"step": 510}, step_times={"step": 202.0}, step_time=202.5))
    assert measures.step == 510 and measures.steps_per_s() == 10


def test_printed_rate_is_used() -> None:
    measures = TaskMetrics()
    measures.take_sample(make_sample({"global_step/sec": 102.5}))
    assert measures.steps_per_s() == 102.5


def test_values_are_those_of_newest_sample() -> None:
    measures = TaskMetrics()
    assert measures.newest_values == {} and measures.step is None
    measures.take_sample(make_sample({"step": 6, "loss": 0.5}))
    measures.take_sample(
        make_sample({"step": 7, "batch": 3}, not_finite={"loss": "nan"}, step_times={"step": 100.0})
    )
    assert (
        measures.step == 7
        and measures.loss != measures.loss
        and measures.newest_values["batch"] == 3
    )


def test_rate_of_host_metrics_uses_times_of_lines() -> None:
    measures = TaskMetrics()
    for time, step in ((100.0, 10), (110.0, 110), (110.0, 110), (112.0, 110)):
        measures.take_sample(
            make_sample(
                {"step": step, "local_step": step / 2},
                step_times={"step": min(time, 110.0), "local_step": time},
            )
        )
    assert measures.steps_per_s() == 10 and measures.steps_per_s(
        name="local_step"
    ) == pytest.approx(50 / 12)
    assert measures.steps_per_s(150.0) == 0.0
    measures.start_attempt()
    # This sample was taken in the attempt before the restart.
    measures.take_sample(make_sample({"step": 110}, step_times={"step": 110.0}))
    measures.take_sample(make_sample({"step": 0}, step_times={"step": 160.0}))
    assert measures.steps_per_s() is None
    measures.take_sample(make_sample({"step": 20}, step_times={"step": 161.0}))
    assert measures.steps_per_s() == 20


def test_gpu_may_have_more_values_from_newer_agent_and_fewer_from_older() -> None:
    assert convert_untrusted([0, 50.0, 1, 2, "new"], GpuSample) == GpuSample(0, 50.0, 1, 2)
    assert convert_untrusted([3], GpuSample) == GpuSample(3, None, None, None)


@pytest.mark.parametrize("value", [[], [-1], [0, 101.0], {"number": 0}])
def test_invalid_gpu_is_refused(value: object) -> None:
    with pytest.raises(InvalidJsonValue):
        convert_untrusted(value, GpuSample)
