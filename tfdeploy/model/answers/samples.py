"""Define what a host reports about the use of its processors, memory and GPUs, and about the
metrics that tasks have printed."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from tfdeploy.model.typed import (
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
# The name may contain any characters, also control characters. So only code in `ui`, which removes
# them, may show the name.
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
    lines. An older agent sends none of the last four."""

    time: Seconds
    attempt: Count = 0
    cpu: Cores | None = None
    memory: Count | None = None
    printed: Annotated[dict[MetricName, Metric], Meta(max_length=64)] = {}
    step_time: Seconds | None = None
    step_times: Annotated[dict[MetricName, Seconds], Meta(max_length=8)] = {}
    not_finite: Annotated[dict[MetricName, NotFinite], Meta(max_length=64)] = {}
    stopped: Annotated[list[MetricName], Meta(max_length=64)] = []


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
    """`task`: "" for the host. The item's blob has one sample per line."""

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
