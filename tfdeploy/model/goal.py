"""How much of a run is done, where its goal is known: `--steps=2000` in its command, or Keras's `Epoch 3/40`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.agent.metric_lines import BATCH, BATCHES, EPOCH, EPOCHS

if TYPE_CHECKING:
    from tfdeploy.model.progress import RunProgress

_COUNTED = "(?:steps?|iterations?|iters?)"
_GOAL = re.compile(rf"(?:(?:train|training|max|num|total|global|final|last|n)_{_COUNTED}|steps|iterations|iters)\Z")


@dataclass(frozen=True)
class Headway:
    """`part`: 0 to 1. `words`: "step 1,393 of 2,000", "epoch 3 of 40"."""

    part: float
    words: str


def goal_of(argv: Sequence[str]) -> int | None:
    """The number of steps that a command asks for; None: it does not, or twice in different words."""
    found = set()
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        name, given, text = word.partition("=")
        if not name.startswith("-") or not _GOAL.match(name.lstrip("-").replace("-", "_")):
            continue
        number = (text if given else following).replace("_", "").replace(",", "")
        if number.isdecimal() and 0 < int(number) < 10**13:
            found.add(int(number))
    return found.pop() if len(found) == 1 else None


def headway(progress: RunProgress) -> Headway | None:
    """Of the run, by its highest step or its leading task's epoch. None: its goal is not known."""
    lead = progress.lead
    if lead is None:
        return None
    values = lead.measures.values()
    epoch, epochs = values.get(EPOCH), values.get(EPOCHS)
    if epoch and epochs and epoch <= epochs:
        batch, batches = values.get(BATCH, 0.0), values.get(BATCHES, 0.0)
        part = (epoch - 1 + (min(1.0, batch / batches) if batches else 0.0)) / epochs
        return Headway(part, f"epoch {epoch:.0f} of {epochs:.0f}")
    goal, step = progress.goal, progress.highest_step
    if goal is None or step is None:
        return None
    return Headway(min(1.0, step / goal), f"step {step:,} of {goal:,}")
