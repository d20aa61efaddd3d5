"""Test how tfdeploy computes how far a run has come: in steps if the command sets the number of
steps, or in epochs if Keras prints them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.dashboard_scenes import PLAN, line, training
from support.recorded import fold_events
from tfdeploy.model.progress.run_progress import RunProgress, run_completion


def progress_after(*lines: str, argv: tuple[str, ...] = ()) -> RunProgress:
    tasks = tuple(replace(task, argv=argv) for task in PLAN.tasks)
    progress = RunProgress(replace(PLAN, tasks=tasks))
    fold_events(progress, training())
    for number, text in enumerate(lines):
        fold_events(progress, [line(1100.0 + number, "worker:0", text)])
    return progress


def test_progress_in_steps() -> None:
    done = run_completion(progress_after(argv=("python", "train.py", "--steps=2786")))
    assert done is not None and (done.fraction, done.text) == (0.5, "step 1,393 of 2,786")
    assert run_completion(progress_after()) is None


def test_shared_step_takes_precedence_over_own_step() -> None:
    assert progress_after("step 5 (global step: 9000)").highest_step == 9000


def test_progress_in_epochs() -> None:
    done = run_completion(progress_after("Epoch 3/40", "469/938 - 5s 10ms/step - loss: 0.5"))
    assert done is not None and done.text == "epoch 3 of 40"
    assert done.fraction == pytest.approx(2.5 / 40)
