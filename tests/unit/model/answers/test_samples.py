"""Test which step and which loss are read from lines that TensorFlow or a program prints (the lines
are real output), and how samples from an agent of another version are read.
"""

from __future__ import annotations

from typing import Any

import pytest

from tfdeploy.agent.metric_lines import strip_cpp_message
from tfdeploy.agent.metric_reader import compile_patterns
from tfdeploy.model.answers.samples import GpuSample, TaskMetrics, TaskSample
from tfdeploy.model.job import DEFAULT_METRICS
from tfdeploy.model.typed import InvalidJsonValue, convert_untrusted

PATTERNS = compile_patterns(DEFAULT_METRICS)
ABORTED = (
    "local_rendezvous.cc:412] Local rendezvous is aborting with status: ABORTED: Step "
    "123937220698374316 cancelled."
)
TENSORFLOW = [
    f"W0000 00:00:1795343521.219564   29562 {ABORTED}  Cancelling rendezvous. "
    "[type.googleapis.com/tensorflow.DerivedStatus='']",
    "I0000 00:00:1795343518.398355   28225 grpc_server_lib.cc:467] Started server with target: "
    "grpc://127.0.0.1:58935",
    "E0000 00:00:1795343518.383044   28225 cuda_platform.cc:52] failed call to cuInit: step: 303",
    "W1122 10:00:00.123456   28225 local_rendezvous.cc:412] ABORTED: Step 65783289095256262 "
    "cancelled.",
    "E1122 10:00:00.123456789   12345 server_chttp2.cc:40] step 12",
    "2026-11-22 10:00:00.123456: W tensorflow/core/framework/local_rendezvous.cc:404] Step "
    "65783289095256262 cancelled",
    "2026-11-22 10:00:00.123456: I "
    "external/local_xla/xla/stream_executor/cuda/cuda_executor.cc:998] step: 4 of 9",
    "E tensorflow/core/client/tensor_c_api.cc:485] Step 6578 cancelled",
]
PROGRAMS = [
    ("step 1200 loss 0.31", 1200, 0.31),
    ("INFO:tensorflow:loss = 0.3, step = 100 (0.5 sec)", 100, 0.3),
    (
        "I1122 10:00:00.123456 139955 basic_session_run_hooks.py:262] loss = 0.5, step = 300",
        300,
        0.5,
    ),
    ("2026-11-22 10:00:00.123456: I train.py:12] step 8", 8, None),
    ("2026-11-22 10:00:00,123 INFO train.py:12] step: 7", 7, None),
    ("1480: Worker 0: training step 120 done (global step: 240)", 240, None),
    (
        "step 5 2026-11-22 10:00:00.123456: W tensorflow/core/x.cc:4] Step 65783289095256262 "
        "cancelled",
        5,
        None,
    ),
]


def measure_lines(*lines: str) -> TaskMetrics:
    measures = TaskMetrics(PATTERNS)
    for second, line in enumerate(lines):
        measures.add_line(100.0 + second, line)
    return measures


def make_sample(printed: dict[str, float], **fields: Any) -> TaskSample:
    return TaskSample(time=1.0, attempt=1, printed=printed, **fields)


@pytest.mark.parametrize("line", TENSORFLOW)
def test_tensorflow_log_line_is_no_measure(line: str) -> None:
    assert strip_cpp_message(line) == ""
    assert measure_lines(line).newest_values() == {}
    assert measure_lines("step 12 loss 0.5", line).newest_values() == {"step": 12, "loss": 0.5}


@pytest.mark.parametrize(("line", "step", "loss"), PROGRAMS)
def test_step_and_loss_printed_by_program(line: str, step: int, loss: float | None) -> None:
    measures = measure_lines(line)
    assert (measures.step, measures.loss) == (step, loss)


@pytest.mark.parametrize(
    "line",
    ["Step 65783289095256262 was cancelled", "CancelledError: Step 123937220698374316 cancelled"],
)
def test_impossible_step_is_ignored(line: str) -> None:
    assert measure_lines(line).step is None
    assert measure_lines("step 10", line, "step 11").step == 11


def test_impossible_step_does_not_hide_step_of_same_time() -> None:
    measures = TaskMetrics(PATTERNS)
    for line in ("step 41", "step 42", "Step 65783289095256262 cancelled"):
        measures.add_line(100.0, line)
    assert measures.step == 42


@pytest.mark.parametrize(
    "steps",
    [
        (1_000_000, 1_000_100),  # the program resumes from a checkpoint
        # The program prints a line before it reads its checkpoint.
        (0, 1_000_000),
        (0, 10_000, 20_000),
        (900, 10),  # the program starts again
        (10**12,),
    ],
)
def test_first_step_and_rate_may_be_large(steps: tuple[int, ...]) -> None:
    assert measure_lines(*(f"step {step}" for step in steps)).step == steps[-1]


def test_step_that_jumps_too_far_is_ignored() -> None:
    assert measure_lines("step 1200", "step 9000000000000").step == 1200


def test_serving_ps_has_no_measures() -> None:
    assert measure_lines(*TENSORFLOW).newest_values() == {}


def test_keras_line_gives_step_over_all_epochs_and_metrics() -> None:
    measures = measure_lines(
        "Epoch 2/3",
        "50/100 - 2s - accuracy: 0.5 - loss: 0.7",
        "100/100 - 4s - accuracy: 0.6 - loss: 0.6",
    )
    assert measures.newest_values() == {
        "epoch": 2,
        "epochs": 3,
        "batch": 100,
        "batches": 100,
        "accuracy": 0.6,
        "loss": 0.6,
        "step": 200,
    }
    measures.add_line(103.0, "saving")
    assert measures.steps_per_s() == 50


def test_printed_values_take_precedence_over_samples_of_host() -> None:
    measures = measure_lines("loss 0.5")
    measures.take_sample(
        make_sample(
            {"train/epoch_loss": 0.25, "loss": 0.75, "accuracy": 0.5, "step": 7, "batch": 3}
        )
    )
    assert measures.newest_values() == {
        "train/epoch_loss": 0.25,
        "accuracy": 0.5,
        "loss": 0.5,
        "step": 7,
    }
    measures.add_line(110.0, "24/100 - 4s - accuracy: 0.75")
    measures.add_line(111.0, "saving")
    assert measures.newest_values()["accuracy"] == 0.75 and set(measures.seen_names()) >= {
        "train/epoch_loss",
        "accuracy",
        "loss",
    }


def test_event_file_steps_give_rate_until_lines_have_steps() -> None:
    measures = measure_lines("saving")
    measures.take_sample(make_sample({"step": 100}, step_time=50.0))
    measures.take_sample(make_sample({"step": 100}, step_time=50.0))
    assert measures.step == 100 and measures.steps_per_s() is None
    measures.take_sample(make_sample({"step": 300}, step_time=60.0))
    assert measures.steps_per_s(65.0) == 20
    # TensorFlow writes event files late. So an unchanged step in an event file does not mean that
    # the task is stalled.
    assert measures.steps_per_s(200.0) is None
    measures.add_line(201.0, "step 500")
    measures.add_line(202.0, "step 510")
    measures.add_line(203.0, "saving")
    measures.take_sample(make_sample({"step": 400}, step_time=202.5))
    assert measures.step == 510 and measures.steps_per_s() == 10


def test_printed_rate_is_used() -> None:
    assert measure_lines("INFO:tensorflow:global_step/sec: 102.5", "saving").steps_per_s() == 102.5


@pytest.mark.parametrize(
    ("line", "step", "loss"),
    [("Loss for final step: 0.25.", None, 0.25), ("step: 0.5", None, None), ("step 5.", 5, None)],
)
def test_final_step_is_ignored(line: str, step: int | None, loss: float | None) -> None:
    assert (measure_lines(line).step, measure_lines(line).loss) == (step, loss)


def test_lines_are_not_matched_if_host_sends_metrics() -> None:
    measures = TaskMetrics({})
    for second in range(3):
        measures.add_line(100.0 + second, f"step {second} loss 0.5")
    assert measures.newest_values() == {} and measures.step is None
    measures.take_sample(
        make_sample({"step": 7, "batch": 3}, not_finite={"loss": "nan"}, step_times={"step": 100.0})
    )
    assert (
        measures.step == 7
        and measures.loss != measures.loss
        and measures.newest_values()["batch"] == 3
    )


def test_rate_of_host_metrics_uses_times_of_lines() -> None:
    measures = TaskMetrics({})
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
