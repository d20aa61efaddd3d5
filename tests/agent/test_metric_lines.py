"""Test which metrics are found in lines that Keras, the hooks of TensorFlow 1 and common programs
have printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest

from tfdeploy.agent.metric_lines import keras_step, parse_keras_line, parse_number
from tfdeploy.agent.metric_reader import MetricPatterns, MetricReader

BAR = (
    "\x1b[1m938/938\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m "
    "\x1b[1m2s\x1b[0m 2ms/step - accuracy: 0.9085 - loss: 0.3268"
)
LINES = [
    ("Epoch 17/40", {"epoch": 17, "epochs": 40, "batch": 0}),
    (BAR, {"batch": 938, "batches": 938, "ms/step": 2, "accuracy": 0.9085, "loss": 0.3268}),
    (
        "938/938 - 2s - 2ms/step - accuracy: 0.91 - loss: 3.2e-01 - val_accuracy: 0.95 - "
        "val_loss: 0.16",
        {
            "batch": 938,
            "batches": 938,
            "ms/step": 2,
            "accuracy": 0.91,
            "loss": 0.32,
            "val_accuracy": 0.95,
            "val_loss": 0.16,
        },
    ),
    (
        " 12/938 [..............................] - ETA: 4s - loss: 2.2 - accuracy: 0.21",
        {"batch": 12, "batches": 938, "loss": 2.2, "accuracy": 0.21},
    ),
    (
        "64/64 [==============================] - 3s 49ms/step - loss: 0.1 - mean absolute: 2 - "
        "val_loss: nan",
        {"batch": 64, "batches": 64, "ms/step": 49, "loss": 0.1, "mean absolute": 2},
    ),
    ("      7/Unknown 1s 150us/step - loss: 1.5", {"batch": 7, "ms/step": 0.15, "loss": 1.5}),
    ("1/1 ━━━━ 1s 2s/step", {"batch": 1, "batches": 1, "ms/step": 2000}),
    ("INFO:tensorflow:global_step/sec: 102.3", {"global_step/sec": 102.3}),
    ("Step\tImg/sec\ttotal_loss", {}),
    ("total images/sec: 1234.56 +/- 0.1", {"images/sec": 1234.56}),
    ("written to /tmp/1/2 in 3s/step", {}),
    ("3/4 of the files - size: many", {}),
    ("Epoch 3/40 was skipped", {}),
    ("2026/11/23 10:00:00 - loss: 0.3", {}),
]


def find_metrics(lines: Sequence[str], patterns: Mapping[str, re.Pattern[str]]) -> dict[str, float]:
    """Return the metrics that these patterns find in `lines`. The last line is the newest."""
    reader = MetricReader(MetricPatterns(patterns))
    return reader.find_metrics(reversed(lines), lambda name, value: True)


def taken(*lines: str) -> dict[str, float]:
    """Return the metrics that are found in `lines` without patterns of a job. The last line is the
    newest."""
    return find_metrics(lines, {})


@pytest.mark.parametrize(("line", "wanted"), LINES)
def test_what_a_line_says(line: str, wanted: dict[str, float]) -> None:
    assert taken(line) == pytest.approx(wanted)


def test_the_newest_line_counts_and_an_epoch_begins_at_its_first_batch() -> None:
    assert taken(BAR, "Epoch 2/3") == pytest.approx(
        {
            "epoch": 2,
            "epochs": 3,
            "batch": 0,
            "batches": 938,
            "ms/step": 2,
            "accuracy": 0.9085,
            "loss": 0.3268,
        }
    )
    assert taken("loss: 0.5", "938/938 - 2s - loss: 0.25") == {
        "batch": 938,
        "batches": 938,
        "loss": 0.25,
    }


def test_the_jobs_own_pattern_comes_before_keras() -> None:
    own = {"loss": re.compile(r"loss: [\d.]+.*val_loss: ([\d.]+)")}
    line = "938/938 - 2s - loss: 0.5 - val_loss: 0.25"
    assert find_metrics([line], own)["loss"] == 0.25


def test_a_bar_drawn_over_itself_counts_as_it_stands_last() -> None:
    assert taken("\r 1/10 [>...] - loss: 9.0\r 2/10 [=>..] - loss: 8.0\r") == {
        "batch": 2,
        "batches": 10,
        "loss": 8.0,
    }


def test_the_step_of_keras() -> None:
    assert keras_step({"epoch": 3, "batch": 12, "batches": 100}) == 212
    assert keras_step({"batch": 12, "batches": 100}) == 12
    assert keras_step({"epoch": 3, "batch": 12}) is None


def test_numbers() -> None:
    texts = ("1,200", "1_200", "3e-4", ".5", "-1", "", None, "nan", "1e999", "x")
    numbers = [1200, 1200, 3e-4, 0.5, -1, None, None, None, None, None]
    assert [parse_number(text) for text in texts] == numbers


def test_a_rate_that_is_no_number_is_none() -> None:
    assert taken("global_step/sec: 1e999 images/sec: 3") == {"images/sec": 3}


def test_no_line_costs_much() -> None:
    for line in ("1/1 " + " - a: " * 2000, "9" * 100_000 + "/", "1/2 " + " - x: 1" * 2000):
        assert len(parse_keras_line(line[:4096])) <= 40
