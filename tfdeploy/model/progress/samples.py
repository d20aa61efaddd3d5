"""Hold the samples that the hosts of a run have recorded so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.samples import HostSample, SampledHost, TaskSample
from tfdeploy.model.status.attempts import Attempt


def combine_gpu_use(
    per_gpu: Iterable[tuple[float | None, int | None]],
) -> tuple[float | None, int | None]:
    """Return the mean use of several GPUs in percent, and the bytes in use in all of them.

    `per_gpu`: (percent, bytes) of each GPU. A value is None if it was not measured.
    """
    known = list(per_gpu)
    busy = [percent for percent, _ in known if percent is not None]
    memory = [used for _, used in known if used is not None]
    return sum(busy) / len(busy) if busy else None, sum(memory) if memory else None


@dataclass(frozen=True)
class Samples:
    """The samples of a run. `tasks`, `hosts`, `attempts`: by the name of the task or host, oldest
    first. `errors`: hosts that did not answer."""

    tasks: dict[str, list[TaskSample]] = field(default_factory=dict)
    hosts: dict[str, list[HostSample]] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    machines: dict[str, SampledHost] = field(default_factory=dict)
    errors: dict[str, TfdeployError] = field(default_factory=dict)
