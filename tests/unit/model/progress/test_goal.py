"""Test how the total number of steps of a run is read from the flags in its command."""

from __future__ import annotations

import pytest

from tfdeploy.model.progress.run_progress import requested_steps


@pytest.mark.parametrize(
    ("words", "goal"),
    [
        (["python", "train.py", "--steps=2000"], 2000),
        (["--train_steps", "10_000"], 10_000),
        (["--max-steps=50", "--steps=50"], 50),
        (["--training_iterations=7"], 7),
        (["--num_steps=5", "--steps=6"], None),  # two flags disagree, so the number is unknown
        (["--step=5"], None),
        (["--save_steps=5"], None),
        (["--steps=many"], None),
        (["--steps"], None),
        ([], None),
    ],
)
def test_goal_in_command(words: list[str], goal: int | None) -> None:
    assert requested_steps(words) == goal
