"""Compute how much of a run is done, if its goal is known: `--steps=2000` in its command, or
Keras's `Epoch 3/40`. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tfdeploy.agent.metric_lines import BATCH, BATCHES, EPOCH, EPOCHS
from tfdeploy.model.progress.run_progress import RunProgress


class RunCompletion(NamedTuple):
    """How much of a run is done. `fraction`: 0 to 1. `text`: "step 1,393 of 2,000", "epoch 3 of
    40"."""

    fraction: float
    text: str


def run_completion(progress: RunProgress) -> RunCompletion | None:
    """Return the completed fraction of the run. It is computed from the epoch of the leading task
    or, if this epoch is not known, from the highest step of all tasks. Return None if neither the
    number of epochs nor the number of steps to reach is known."""
    lead = progress.lead_task
    if lead is None:
        return None
    values = lead.measures.newest_values()
    epoch, epochs = values.get(EPOCH), values.get(EPOCHS)
    if epoch and epochs and epoch <= epochs:
        batch, batches = values.get(BATCH, 0.0), values.get(BATCHES, 0.0)
        part = (epoch - 1 + (min(1.0, batch / batches) if batches else 0.0)) / epochs
        return RunCompletion(part, f"epoch {epoch:.0f} of {epochs:.0f}")
    goal, step = progress.goal, progress.highest_step
    if goal is None or step is None:
        return None
    return RunCompletion(min(1.0, step / goal), f"step {step:,} of {goal:,}")
