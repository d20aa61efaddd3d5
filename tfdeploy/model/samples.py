"""What the hosts of a run have noted so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.samples import HostSample, SampledHost, TaskSample
from tfdeploy.model.attempts import Attempt


@dataclass(frozen=True)
class Samples:
    """`tasks`, `hosts`, `attempts`: by name, oldest first. `errors`: hosts that gave no answer."""

    tasks: dict[str, list[TaskSample]] = field(default_factory=dict)
    hosts: dict[str, list[HostSample]] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    machines: dict[str, SampledHost] = field(default_factory=dict)
    errors: dict[str, TfdeployError] = field(default_factory=dict)
