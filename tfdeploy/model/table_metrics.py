"""Which metrics of a task stand in tables: the job's own, what its lines print, and rates above 0. Pure.

The scalars of its event files, twenty a layer, stand in curves, on the task's page and in `--json`. The step, loss and accuracy
that they have come under these names: see agent/sampling.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tfdeploy.agent.metric_names import RATE
from tfdeploy.agent.metric_names import ordered as ordered
from tfdeploy.model.measures import own_metrics

_PER_STEP = "ms/step"  # of Keras


def in_tables(names: Iterable[str], asked: Collection[str] = ()) -> list[str]:
    """Return those of a task's metrics that tables may show, the most wanted first. `asked`: the job's own."""
    shown = (name for name in names if name in asked or "/" not in name or is_rate(name) or name == _PER_STEP)
    return ordered(own_metrics(shown), asked)


def is_rate(name: str) -> bool:
    return name.endswith(RATE)


def is_shown(name: str, value: float | None, asked: Collection[str] = ()) -> bool:
    """Return False for a rate of 0 that the job does not ask for: TensorFlow writes one for a step that is not counted."""
    return value is not None and (value > 0 or not is_rate(name) or name in asked)


def label(name: str) -> str:
    """Without the folder of the event file: `global_step/sec` for `train/global_step/sec`."""
    return "/".join(name.split("/")[-2:]) if is_rate(name) else name


def shown(values: Mapping[str, float], asked: Collection[str] = ()) -> dict[str, float]:
    """Return label -> value of what tables show. A rate that lines and several files tell stands once."""
    found: dict[str, float] = {}
    for name in sorted(in_tables(values, asked), key=lambda name: is_rate(name) and name.count("/")):
        if is_shown(name, values[name], asked):
            found.setdefault(label(name), values[name])
    return found
