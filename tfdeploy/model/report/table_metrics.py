"""Choose which metrics of a task the tables show: the job's own metrics, the metrics in the
program's lines, and rates above 0. Pure.

Event files may have twenty scalars for each layer. Such scalars are shown only in curves, on the
task's page and in `--json`. The tables also show step, loss and accuracy of event files, because
agent/sampling names these three scalars `step`, `loss` and `accuracy`, without the folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tfdeploy.agent.metric_names import RATE
from tfdeploy.agent.metric_names import sort_metrics as sort_metrics
from tfdeploy.model.measures import extra_metrics

_PER_STEP = "ms/step"  # a metric that Keras prints


def metrics_for_tables(names: Iterable[str], job_metrics: Collection[str] = ()) -> list[str]:
    """Return the task's metrics that tables may show, the most important first. `job_metrics`: the
    names of the job's own metrics."""
    shown_names = (
        name
        for name in names
        if name in job_metrics or "/" not in name or is_rate(name) or name == _PER_STEP
    )
    return sort_metrics(extra_metrics(shown_names), job_metrics)


def is_rate(name: str) -> bool:
    return name.endswith(RATE)


def has_value_to_show(name: str, value: float | None, job_metrics: Collection[str] = ()) -> bool:
    """True if the metric has a value to show. A rate of 0 is shown only if the job file defines
    the metric: TensorFlow itself writes a rate of 0 if the program does not count its steps."""
    return value is not None and (value > 0 or not is_rate(name) or name in job_metrics)


def metric_label(name: str) -> str:
    """Return the metric's name as tables show it. The label of a rate omits the folder of the event
    file: it is `global_step/sec` for the metric `train/global_step/sec`."""
    return "/".join(name.split("/")[-2:]) if is_rate(name) else name


def labelled_values(
    values: Mapping[str, float], job_metrics: Collection[str] = ()
) -> dict[str, float]:
    """Return label -> value of the metrics that tables show. If several rates have one label, a
    rate from lines takes precedence over one from event files."""
    shown: dict[str, float] = {}
    for name in sorted(
        metrics_for_tables(values, job_metrics), key=lambda name: is_rate(name) and name.count("/")
    ):
        if has_value_to_show(name, values[name], job_metrics):
            shown.setdefault(metric_label(name), values[name])
    return shown
