"""Test that the right step and the right loss are read from printed lines. The lines come from
public programs and from TensorFlow.
"""

from __future__ import annotations

import math

import pytest

from support.recorded import PrintedMetrics
from tfdeploy.agent.metric_lines import is_possible_step, strip_cpp_message
from tfdeploy.agent.metric_reader import MetricReader, compile_patterns
from tfdeploy.model.job import DEFAULT_METRICS

LINES: list[tuple[str, int | None, float | None]] = [
    # The program counts in floats: get_variable("global_step", [])
    ("Step: 100.0", 100, None),
    ("Step: 1200.0, loss: 0.25", 1200, 0.25),
    ("global step 7. done", 7, None),
    # Numbers with thousands separators, and numbers in the format %g.
    ("step 1,000", 1000, None),
    ("step: 1,234,567 loss: 1,234.5", 1234567, 1234.5),
    ("Step 1_000", 1000, None),
    ("step 1e+06", 1_000_000, None),
    # The step that all workers share takes precedence over the worker's own step.
    ("1480.2: Worker 0: training step 5 done (global step: 12)", 12, None),
    ("Worker 1: training step 120 done (global step:240, cross entropy=0.31)", 240, None),
    ("Worker 0: training step 5 done (global step: 12.0); Accuracy: 0.91", 12, None),
    ("step 12 (global step: 24)", 24, None),
    ("local_step: 5, global step: 10172, loss: 0.5", 10172, 0.5),
    ("Epoch: 2, step: 17, global_step: 1,017", 1017, None),
    (
        "After 100 training steps (300 global steps), loss on training batch is 0.25. (0.012 "
        "sec/batch)", 300, 0.25),
    # The word "step" comes after the number, or another word is used.
    ("After 1000 training step(s), loss on training batch is 3.2e-05.", 1000, 3.2e-05),
    ("After 1000 training step(s), validation accuracy = 0.93", 1000, None),
    ("Iter 300", 300, None),
    ("Iter 1280, Minibatch Loss= 1.234567, Training Accuracy= 0.5", 1280, 1.234567),
    ("Iter 100, Testing Accuracy= 0.9128", 100, None),
    ("Iteration   10/1000", 10, None),
    ("Iteration: 7 Loss: 0.50", 7, 0.5),
    ("iter: 40 | loss 2.5", 40, 2.5),
    ("Epoch 3, iteration 20, step 500: loss = 0.125", 500, 0.125),
    ("10\timages/sec: 12.3 +/- 0.0 (jitter = 0.0)\t7.021", 10, None),
    # Lines with other punctuation.
    ("Epoch [1/5], Step [100/600], Loss: 0.2", 100, 0.2),
    ("Epoch [1/5], Step [  7/600], Loss: 0.2", 7, 0.2),
    ("[Step:5/90], all_loss: 0.6", 5, None),
    ("Step 100/1000", 100, None),
    ("step=100, loss=0.3", 100, 0.3),
    ("step:3, loss:0.5", 3, 0.5),
    ("Step #12 loss 0.5", 12, 0.5),
    ("Step: 100,  Epoch:  1,  Batch: 100 of 550,  Cost: 2.3026,  AvgTime: 3.20ms", 100, 2.3026),
    ("Step %5d: 5", None, None),
    ('{"step": 100, "loss": 0.5}', 100, 0.5),
    ("{'loss': 0.5, 'learning_rate': 1e-3}", None, 0.5),
    ("Global step is 12", 12, None),
    ("current_step=40 train_loss=0.25 val_loss=0.75", 40, 0.25),
    ("train_step: 6 total_loss: 0.5", 6, 0.5),
    ("Worker 1: training step 12 done , loss is 0.5", 12, 0.5),
    ("Step: 10, loss: tf.Tensor(0.25, shape=(), dtype=float32)", 10, 0.25),
    ("global step 100 learning rate 0.5000 step-time 0.20 perplexity 9.97 loss 2.3", 100, 2.3),
    (
        "global step 100 ( 12.50% ) , epoch: 3, loss: "
        "0.50000, speed: 2.10 step/s, ETA: 1:02:03", 100, 0.5),
    ("INFO:tensorflow:global step 100: loss = 0.5000 (0.123 sec/step)", 100, 0.5),
    ("INFO:tensorflow:loss = 0.3, step = 101 (0.5 sec)", 101, 0.3),
    ("INFO:tensorflow:Recording summary at step 300.", 300, None),
    ("Step 8: loss = 0.20 (0.003 sec)", 8, 0.2),
    ("step 40, seq2seq, AB train loss: 0.125", 40, 0.125),
    ("Global_step 100, task:0_step 50, training accuracy 0.9", 100, None),
    ("Step 5: loss = 0.50 (0.003 sec), global step: 12.", 12, 0.5),
    ("Current step is 5, global step is 12", 12, None),
    ("Local Step 5, Global Step 12 (Loss: 0.50)", 12, 0.5),
    ("Global Step: 12 || Local Step: 5", 12, None),
    ("iteration:1 step:5/100, loss 0.5", 5, 0.5),
    ("time: 5.0 | worker: 1 | traing step:5 | global step:10 | loss: 0.5", 10, 0.5),
    ("[step: 1,000 of 20,000] loss: 0.5, accuracy: 0.91", 1000, 0.5),
    ("now global_step is 5 after create session, num_steps: 100, last_step:5 :", 5, None),
    ("Average loss at step  2000 :  50.5", 2000, 50.5),
    ("After 100 trainning step(s), validation accuracy using average model is 0.9", 100, None),
    ("After 100 steps, perplexity is 12.500", 100, None),
    ("worker: 0.5 (0.25), step = 1e+06", 1_000_000, None),
    ("[RANK0] Epoch 1 | Iter 20 | Train Loss 0.50000", 20, 0.5),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.500000", None, 0.5),
    ("Train step: 5 | best val loss: 0.3", 5, None),
    # The loss has another name, or is no longer a number.
    ("Epoch: 0001 cost= 0.250000000", None, 0.25),
    ("Cost: 0.5", None, 0.5),
    ("loss= .5", None, 0.5),
    ("loss: [0.5]", None, 0.5),
    ("train loss 0.5, validation loss 0.75", None, 0.5),
    ("step 100, loss: nan", 100, math.nan),
    ("Model diverged with loss = NaN.", None, math.nan),
    ("step 7 loss -inf", 7, -math.inf),
    # Lines that contain no step, although they look like it.
    ("step: 0.5", None, None),
    ("step 1.0.2", None, None),
    ("step_size 0.1", None, None),
    ("step size: 5", None, None),
    ("steps: 200000", None, None),
    ("train_steps: 200", None, None),
    ("max step: 1000", None, None),
    ("--step=5 --cost=3 --loss=4", None, None),
    ("learning rate 1e-3, batch 32", None, None),
    ("Epoch 3", None, None),
    ("step 1e-3", None, None),
    ("time per step: 250 ms", None, None),
    ("step 250 ms", None, None),
    ("step 3ms", None, None),
    ("49ms/step: 5", None, None),
    ("time-step 5", None, None),
    ("step 40%", None, None),
    ("step: 10:20:30", None, None),
    ("step 2026-11-23", None, None),
    ("global_step/sec: 12.3", None, None),
    ("<tf.Variable 'global_step:0' shape=() dtype=int64_ref>", None, None),
    ("    observation = env.step(1)", None, None),
    ("max iter: 300, iterations: 200", None, None),
    ("per iteration: 5", None, None),
    ("Average time per step: 0.35", None, None),
    ("start_decay_step=8000, decay_steps 1000", None, None),
    ("the last episode runs to 200 time steps", None, None),
    ("Saving after 500 steps, for 3 s", None, None),
    ("parameter 5 after 6", None, None),
    # Lines that contain no loss, although they look like it.
    ("loss function: mse", None, None),
    ("lossless 3", None, None),
    ("loss_scale 128", None, None),
    ("val_loss: 0.5", None, None),
    ("validation loss: 0.5", None, None),
    ("Test loss: 0.5", None, None),
    ("Test set: Average loss: 0.5000, Accuracy: 9000/10000 (90%)", None, None),
    ("====> Test set loss: 0.5000", None, None),
    ("Test_set: avg_loss:  0.5", None, None),
    ("Testing cost= 0.5 Absolute mean square loss difference: 0.1", None, None),
    ("Loss_D: 0.5 Loss_G: 0.25", None, None),
    ("packet loss 3", None, None),
    ("loss 5%", None, None),
    ("loss: [0.5, 0.9]", None, None),
    ("time cost: 3.25", None, None),
    ("cost: 3.2s, cost 12", None, None),
    ("cost: $3.20", None, None),
]  # fmt: skip


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


def read_lines(*lines: str) -> PrintedMetrics:
    """Return the metrics in lines that a task prints one second apart."""
    printed = PrintedMetrics()
    for second, line in enumerate(lines):
        printed.read_line(line, 100.0 + second)
    return printed


def step_and_loss(*lines: str) -> tuple[float | None, float | None]:
    known = read_lines(*lines).known
    return known.get("step"), known.get("loss")


@pytest.mark.parametrize(("line", "step", "loss"), [*LINES, *PROGRAMS])
def test_step_and_loss_in_line(line: str, step: int | None, loss: float | None) -> None:
    assert step_and_loss(line) == (step, pytest.approx(loss, nan_ok=True))


def test_nan_loss_replaces_previous_loss() -> None:
    step, loss = step_and_loss("step 1 loss 0.5", "step 2 loss nan")
    assert step == 2 and loss is not None and math.isnan(loss)


@pytest.mark.parametrize("line", TENSORFLOW)
def test_tensorflow_log_line_is_no_measure(line: str) -> None:
    assert strip_cpp_message(line) == ""
    assert read_lines(line).known == {}
    assert read_lines("step 12 loss 0.5", line).known == {"step": 12, "loss": 0.5}


@pytest.mark.parametrize(
    "line",
    ["Step 65783289095256262 was cancelled", "CancelledError: Step 123937220698374316 cancelled"],
)
def test_impossible_step_is_ignored(line: str) -> None:
    assert step_and_loss(line)[0] is None
    assert step_and_loss("step 10", line, "step 11")[0] == 11


def test_impossible_step_does_not_hide_step_of_same_time() -> None:
    newest_first = ["Step 65783289095256262 cancelled", "step 42", "step 41"]
    reader = MetricReader(compile_patterns(DEFAULT_METRICS))
    found = reader.find_metrics(newest_first, lambda name, value: is_possible_step(value, None, 0))
    assert found == {"step": 42}


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
    assert step_and_loss(*(f"step {step}" for step in steps))[0] == steps[-1]


def test_step_that_jumps_too_far_is_ignored() -> None:
    assert step_and_loss("step 1200", "step 9000000000000")[0] == 1200


def test_serving_ps_has_no_measures() -> None:
    assert read_lines(*TENSORFLOW).known == {}


def test_keras_line_gives_step_over_all_epochs_and_metrics() -> None:
    printed = read_lines(
        "Epoch 2/3",
        "50/100 - 2s - accuracy: 0.5 - loss: 0.7",
        "100/100 - 4s - accuracy: 0.6 - loss: 0.6",
        "saving",
    )
    assert printed.known == {
        "epoch": 2,
        "epochs": 3,
        "batch": 100,
        "batches": 100,
        "accuracy": 0.6,
        "loss": 0.6,
        "step": 200,
    }
    assert printed.step_times == {"step": 102.0}


def test_printed_rate_is_found() -> None:
    known = read_lines("INFO:tensorflow:global_step/sec: 102.5", "saving").known
    assert known == {"global_step/sec": 102.5}


@pytest.mark.parametrize(
    ("line", "step", "loss"),
    [("Loss for final step: 0.25.", None, 0.25), ("step: 0.5", None, None), ("step 5.", 5, None)],
)
def test_final_step_is_ignored(line: str, step: int | None, loss: float | None) -> None:
    assert step_and_loss(line) == (step, loss)
