"""Test which of a program's scalars is taken as its step, its loss and its accuracy. Test also that
scalars that differ only in the layer form one group. The names are from public programs.
"""

from __future__ import annotations

import pytest

from tfdeploy.agent.metric_names import EventProgress, Scalar, select_progress, sort_metrics

NONE = EventProgress({})


def shown_figures(*each: tuple[str, str, float, int, float]) -> EventProgress:
    """Return what tfdeploy shows for these scalars. Each is given as (folder, tag, value, step,
    time)."""
    return select_progress(
        {
            f"{folder}/{tag}": Scalar(folder=folder, tag=tag, value=value, step=step, time=time)
            for folder, tag, value, step, time in each
        }
    )


def test_nothing_written_says_nothing() -> None:
    assert shown_figures() == NONE


def test_of_several_writers_the_one_that_trains_and_is_furthest_counts() -> None:
    answers = shown_figures(
        ("train", "loss", 0.5, 900, 50.0),
        ("test", "loss", 0.75, 910, 60.0),
        ("small", "loss", 0.1, 3, 60.0),
        ("eval", "accuracy", 0.25, 900, 60.0),
    )
    assert answers == EventProgress({"step": 900, "loss": 0.5}, 50.0)


def test_the_only_writer_counts_whatever_its_folder_is_called() -> None:
    assert shown_figures(("test", "accuracy_1", 0.9, 10, 5.0)) == EventProgress(
        {"step": 10, "accuracy": 0.9}, 5.0
    )
    assert shown_figures(("test", "loss", 0.9, 10, 5.0), ("eval", "loss", 0.9, 10, 5.0)) == NONE


def test_what_an_earlier_attempt_wrote_is_no_step_of_this_one() -> None:
    answers = shown_figures(("run1", "loss", 0.25, 5000, 100.0), ("run2", "loss", 2.0, 10, 1000.0))
    assert answers == EventProgress({"step": 10, "loss": 2.0}, 1000.0)


@pytest.mark.parametrize(("tag", "step"), [("loss", 0), ("epoch_loss", 3)])
def test_a_writer_without_steps_and_an_epoch_are_no_step(tag: str, step: int) -> None:
    assert shown_figures(("train", tag, 0.5, step, 5.0)) == EventProgress({"loss": 0.5})


def test_one_that_is_written_once_an_epoch_does_not_take_the_step_back() -> None:
    answers = shown_figures(
        ("logs", "loss", 0.5, 900, 50.0),
        ("logs", "epoch_accuracy", 0.75, 2, 60.0),
        ("logs", "lr", 0.1, 3, 60.0),
    )
    assert answers == EventProgress({"step": 900, "loss": 0.5, "accuracy": 0.75}, 50.0)


@pytest.mark.parametrize(
    ("tags", "loss"),
    [
        (("loss", "loss_1", "layer/loss"), 1.0),
        (("total_loss", "conv1/weights/l2_loss"), 1.0),
        (("losses/total_loss",), 1.0),
        (("cost", "cost_function"), 1.0),
        (("cross_entropy_1", "accuracy_1"), 1.0),
        (("Loss/train", "Loss/validation"), 1.0),
        (("tower_0/loss", "tower_1/loss"), None),
        (("d_loss", "g_loss"), None),
        (("val_loss", "loss_scale", "validation/loss"), None),
    ],
)
def test_the_loss_is_the_one_that_is_surely_meant(
    tags: tuple[str, ...], loss: float | None
) -> None:
    answers = shown_figures(
        *(("logs", tag, float(number), 7, 5.0) for number, tag in enumerate(tags, 1))
    )
    assert answers.values.get("loss") == loss and answers.values["step"] == 7


def test_named_ones_then_loss_and_accuracy_come_first_and_those_of_each_layer_last() -> None:
    names = [
        "logs/layer1/weights/summaries/mean_1", "logs/layer1/weights/summaries/stddev_1/stddev",
        "logs/batch/fraction_of_32_full", "logs/learning_rate", "logs/max", "logs/accuracy_1",
        "logs/loss", "f1", "ms/step",
    ]  # fmt: skip
    assert sort_metrics(names, job_metrics=("f1",)) == [
        "f1", "logs/accuracy_1", "logs/loss", "logs/learning_rate", "ms/step",
        "logs/layer1/weights/summaries/mean_1", "logs/layer1/weights/summaries/stddev_1/stddev",
        "logs/batch/fraction_of_32_full", "logs/max",
    ]  # fmt: skip
