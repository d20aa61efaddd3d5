"""Define what a host reports about the use of its processors, memory and GPUs, and about the
metrics that tasks print: step, loss, steps per second and others. Compute the metrics of one task
from these reports, and choose which metrics tables show.

The host's sampler finds the metrics in the lines (agent/sampling/printed.py), so this machine
searches no lines.

An event file may have twenty scalars for each layer of the model. Such scalars are shown only in
curves, on the task's page and in `--json`. The tables show the job's own metrics, the metrics in
the program's lines, and rates above 0. Of event files, they also show step, loss and accuracy,
which agent/sampling stores without the name of the file's folder.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from tfdeploy.agent.metric_lines import BATCH, BATCHES, EPOCH, EPOCHS
from tfdeploy.agent.metric_names import RATE
from tfdeploy.agent.metric_names import sort_metrics as sort_metrics
from tfdeploy.agent.metric_patterns import OTHER_STEPS, STEP_COUNTERS
from tfdeploy.text.typed import (
    Answer,
    Count,
    Number,
    Outcome,
    Seconds,
    StreamingVerb,
    TaskName,
    TaskNameOrNone,
    Text,
)

Cores = Annotated[float, Meta(ge=0, le=1e6)]
Percent = Annotated[float, Meta(ge=0, le=100)]
# The name of a metric may contain any characters, also control characters. So only code in `ui`,
# which removes control characters, may show the name.
MetricName = Annotated[str, Meta(min_length=1, max_length=128)]
NotFinite = Literal["nan", "inf", "-inf"]
Metric = Annotated[float, Meta(ge=-1e308, le=1e308)]


class GpuSample(Struct, array_like=True):
    """One GPU, as an array. A newer agent may append elements, an older one may send fewer. None
    stands for a value that was not measured."""

    number: Annotated[int, Meta(ge=0, le=1023)]
    busy: Percent | None = None
    used_bytes: Count | None = None
    total_bytes: Count | None = None


class TaskSample(Answer):
    """`cpu`: cores in use since the previous sample. `memory`: bytes. None stands for a value that
    was not measured. `printed`: the metrics that the task has printed or written to event files
    since the previous sample; in the newest sample, all known metrics. `step_time`: when the step
    was written to an event file, or None if it was printed. `step_times`: when each step counter
    was last printed. `not_finite`: metrics that are NaN or infinite, which JSON cannot express.
    `stopped`: metrics that are no longer read, because their patterns take too long on this task's
    lines. An older agent does not send the last four of these fields."""

    time: Seconds
    attempt: Count = 0
    cpu: Cores | None = None
    memory: Count | None = None
    printed: Annotated[dict[MetricName, Metric], Meta(max_length=64)] = {}
    step_time: Seconds | None = None
    step_times: Annotated[dict[MetricName, Seconds], Meta(max_length=8)] = {}
    not_finite: Annotated[dict[MetricName, NotFinite], Meta(max_length=64)] = {}
    stopped: Annotated[list[MetricName], Meta(max_length=64)] = []

    @property
    def values(self) -> dict[str, float]:
        """Return the metrics of the sample, including NaN and infinite ones."""
        return {**self.printed, **{name: float(text) for name, text in self.not_finite.items()}}


class HostSample(Answer):
    """`rates`: bytes per second that were received, sent, read and written."""

    time: Seconds
    cpu: Cores | None = None
    memory: Count | None = None
    rates: Annotated[dict[Annotated[str, Meta(max_length=16)], Count], Meta(max_length=8)] = {}
    gpus: Annotated[list[GpuSample], Meta(max_length=64)] = []


class NewestSamples(Answer):
    host: HostSample
    tasks: Annotated[dict[TaskName, TaskSample], Meta(max_length=10_000)] = {}


class SampledTask(Answer):
    """The samples of one task, or of the host itself if `task` is "". The item's blob has one
    sample per line."""

    task: TaskNameOrNone


class AttemptRow(Answer):
    """One start of a task. `ended`: null if the attempt is still running, or if its end was not
    recorded."""

    number: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    started: Seconds
    ended: Seconds | None
    outcome: Outcome | None
    exit_code: Number | None
    signal: Number | None
    reason: Text | None


Attempts = Annotated[list[AttemptRow], Meta(max_length=1000)]


class SampledHost(Answer):
    """`memory`: the host's memory in bytes, or null if it is not known. `attempts`: the newest
    hundred attempts of each task, as supervisors have recorded them. An older agent sends none."""

    cores: Annotated[int, Meta(ge=1, le=1_000_000)]
    memory: Count | None
    attempts: Annotated[dict[TaskName, Attempts], Meta(max_length=10_000)] = {}


SAMPLES = StreamingVerb("samples", SampledTask, SampledHost)


WINDOW_S = 30.0  # steps per second are averaged over this time
_MOST_POINTS = 121  # the most steps of a counter that are kept: four per second in WINDOW_S

SHOWN_APART = ("step", "loss")  # metrics with a column of their own
PRINTED_RATE = "global_step/sec"  # the metric that is used as the rate if a program prints no steps

STANDARD_METRICS = frozenset((*SHOWN_APART, *OTHER_STEPS, EPOCH, EPOCHS, BATCH, BATCHES))


def extra_metrics(metrics: Iterable[str]) -> list[str]:
    """Return the metrics that are shown as `name value`. Three kinds are left out: the steps, the
    metrics with a column of their own, and Keras's position in its epochs."""
    return [name for name in metrics if name not in STANDARD_METRICS]


class TaskMetrics:
    """The metrics of one task, computed from its samples."""

    def __init__(self) -> None:
        self.newest_values: Mapping[str, float] = {}  # {metric: its newest value}
        # {step counter that the task prints: when it was printed last}
        self._counted: dict[str, float] = {}
        self._samples: dict[str, deque[tuple[float, float]]] = {
            name: deque(maxlen=_MOST_POINTS) for name in STEP_COUNTERS
        }

    def take_sample(self, sample: TaskSample) -> None:
        """Record the metrics that the task's host found in the output and event files of the
        task."""
        metrics = self.newest_values = sample.values
        for name in metrics.keys() & sample.step_times.keys() & self._samples.keys():
            if sample.step_times[name] > self._counted.get(name, 0.0):
                self._counted[name] = sample.step_times[name]
                _append_in_window(self._samples[name], self._counted[name], metrics[name])
        written, samples = sample.step_time, self._samples["step"]
        if written is None or "step" in self._counted or "step" not in metrics:
            return
        if not samples or written > samples[-1][0]:
            _append_in_window(samples, written, metrics["step"])

    def start_attempt(self) -> None:
        """Forget the steps of the previous attempt, so that the steps of a new attempt are not
        compared with them."""
        for samples in self._samples.values():
            samples.clear()

    @property
    def step(self) -> int | None:
        step = self.newest_values.get("step")
        return None if step is None else int(step)

    @property
    def loss(self) -> float | None:
        return self.newest_values.get("loss")

    def steps_per_s(self, until: float | None = None, name: str = "step") -> float | None:
        """Return steps per second over the last 30 s of output; 0.0 if no step was printed for 30 s
        before `until`.

        Return None if the rate is not known. If the steps come from event files only, return None
        in place of 0.0: programs write these files late, so a silence of 30 s means nothing.
        `name`: "step", or one of OTHER_STEPS.
        """
        samples = self._samples[name]
        if len(samples) < 2:
            return self.newest_values.get(PRINTED_RATE) if name == "step" else None
        (first, low), (last, high) = samples[0], samples[-1]
        if until is not None and until - last > WINDOW_S:
            return 0.0 if name in self._counted else None
        return (high - low) / (last - first) if last > first else None


def _append_in_window(samples: deque[tuple[float, float]], time: float, step: float) -> None:
    if samples and (step < samples[-1][1] or time < samples[-1][0]):
        samples.clear()
    samples.append((time, step))
    while time - samples[0][0] > WINDOW_S:
        samples.popleft()


_PER_STEP = "ms/step"  # a metric that Keras prints


def metrics_for_tables(names: Iterable[str], job_metrics: Collection[str]) -> list[str]:
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


def has_value_to_show(name: str, value: float | None, job_metrics: Collection[str]) -> bool:
    """True if the metric has a value to show. A rate of 0 is shown only if the job file defines
    the metric: TensorFlow itself writes a rate of 0 if the program does not count its steps."""
    return value is not None and (value > 0 or not is_rate(name) or name in job_metrics)


def metric_label(name: str) -> str:
    """Return the metric's name as tables show it. The label of a rate omits the folder of the event
    file: it is `global_step/sec` for the metric `train/global_step/sec`."""
    return "/".join(name.split("/")[-2:]) if is_rate(name) else name


def labelled_values(
    value_by_metric: Mapping[str, float], job_metrics: Collection[str]
) -> dict[str, float]:
    """Return {label: value} of the metrics that tables show. If several rates have the same label,
    a rate that was printed takes precedence over a rate from an event file."""
    shown: dict[str, float] = {}
    for name in sorted(
        metrics_for_tables(value_by_metric, job_metrics),
        key=lambda name: is_rate(name) and name.count("/"),
    ):
        if has_value_to_show(name, value_by_metric[name], job_metrics):
            shown.setdefault(metric_label(name), value_by_metric[name])
    return shown
