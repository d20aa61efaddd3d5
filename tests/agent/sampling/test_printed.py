"""Test which metrics are found at the end of a task's log, also if the log grows, is rotated, or
ends within a line.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tfdeploy.agent.metric_patterns import LOSS, MOST_CHARS, STEP
from tfdeploy.agent.sampling.printed import READ_BYTES, PrintedMetrics, compile_short_named

PATTERNS = compile_short_named(
    {"step": r"step (\d+)", "loss": r"loss ([\d.]+)", "bad": "(", "none": "x", "n" * 65: "(x)"}
)


def looked(one: PrintedMetrics, ended: bool = False) -> dict[str, float]:
    """Read the new lines of the log, and return the metrics whose values are new."""
    one.read_new_metrics(ended)
    return one.take_new_values()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "out.log"


def test_patterns_that_cannot_be_used_are_left_out() -> None:
    assert list(PATTERNS) == ["step", "loss"]


def test_an_expression_that_takes_long_to_compile_is_left_out() -> None:
    at_most = "(" + "x" * (MOST_CHARS - 2) + ")"
    patterns = compile_short_named(
        {"a": at_most, "b": at_most.replace("x", "xx", 1), "step": STEP, "loss": LOSS}
    )
    assert list(patterns) == ["a", "step", "loss"]


def test_only_what_is_new_and_whole(log: Path) -> None:
    one = PrintedMetrics(str(log.parent), PATTERNS)
    assert looked(one) == {}
    log.write_text("step 1 loss 0.5\nstep 2 loss 0.2")
    assert looked(one) == {"step": 1, "loss": 0.5}
    assert looked(one) == {}
    with log.open("a") as file:
        file.write("5\n")
    assert looked(one) == {"step": 2, "loss": 0.25}


def test_a_log_that_was_rotated_is_read_from_its_beginning(log: Path) -> None:
    one = PrintedMetrics(str(log.parent), PATTERNS)
    log.write_text("step 1\n" * 10)
    assert looked(one) == {"step": 1}
    log.rename(log.with_suffix(".1"))
    log.write_text("step 7\n")
    assert looked(one) == {"step": 7}


def test_of_much_output_the_end_is_read(log: Path) -> None:
    one = PrintedMetrics(str(log.parent), PATTERNS)
    log.write_text("loss 0.1\n" + "x" * 80 + "\n" * 3 * READ_BYTES + "step 9\n")
    assert looked(one) == {"step": 9}


def test_keras_over_several_looks(log: Path) -> None:
    one = PrintedMetrics(str(log.parent), {})
    log.write_text("Epoch 3/5\n")
    assert looked(one) == {"epoch": 3, "epochs": 5, "batch": 0}
    with log.open("a") as file:
        file.write(" 10/100 [=>...] - loss: 0.5\r 20/100 [==>..] - loss: 0.25\r")
    assert looked(one) == {"batch": 20, "batches": 100, "loss": 0.25, "step": 220}


def test_a_step_before_a_long_traceback_is_found_at_the_attempts_end_however_the_looks_fell(
    log: Path,
) -> None:
    one = PrintedMetrics(str(log.parent), PATTERNS)
    log.write_text("step 3\n" + "File x.py, line 3\n" * 300)
    assert looked(one) == {}
    with log.open("a") as file:
        file.write("File x.py, line 3\n" * 300)
    assert looked(one) == {}
    assert looked(one, ended=True) == {"step": 3}
    assert looked(one, ended=True) == {}


def test_steps_have_the_time_at_which_they_were_written_and_no_step_jumps_further_than_is_possible(
    log: Path,
) -> None:
    one = PrintedMetrics(str(log.parent), PATTERNS)
    now = time.time()
    for second, line in enumerate(("step 1200", "step 9000000000000", "loss 0.5")):
        with log.open("a") as file:
            file.write(line + "\n")
        os.utime(log, (now + second, now + second))
        one.read_new_metrics()
    assert one.known == {"step": 1200, "loss": 0.5} and one.step_times == {
        "step": pytest.approx(now)
    }


def test_a_loss_that_is_no_number_any_more_is_known_as_text(log: Path) -> None:
    one = PrintedMetrics(str(log.parent), compile_short_named({"loss": LOSS}))
    log.write_text("loss: nan\n")
    assert looked(one) == {} and one.finite == {} and one.not_finite == {"loss": "nan"}
