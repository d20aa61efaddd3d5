"""Read the samples (measured CPU, memory, GPUs and so on) of a run's tasks and hosts.

The samples also contain the metrics that the tasks have printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from tfdeploy.agent import frames
from tfdeploy.errors import BadAnswer
from tfdeploy.model.answers.samples import SAMPLES, HostSample, SampledHost, TaskSample
from tfdeploy.model.plan import Plan
from tfdeploy.model.status.task_status import Samples, make_attempt_from_row
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.text.typed import decode
from tfdeploy.transport.protocols import Fleet, Session

# A host's file of samples is refused if it is larger than this number of bytes when unpacked.
# Agents shrink a file that is larger than 1 MiB, so a correct file is far below this limit.
MOST_BYTES = 4 << 20
SILENCE_S = 60.0  # a host that sends nothing for this time counts as unreachable
S = TypeVar("S", TaskSample, HostSample)


def read_samples(fleet: Fleet, plan: Plan, only_hosts: frozenset[str] | None = None) -> Samples:
    """Return the samples of all hosts of the run. `only_hosts`: ask only these hosts."""
    answers, errors = split_outcomes(
        fleet.each(hosts_of(plan, only_hosts), lambda session: _read_host_samples(session, plan))
    )
    gathered = Samples(errors=errors)
    for host, (tasks, host_samples, machine) in answers.items():
        gathered.tasks.update(tasks)
        gathered.hosts[host], gathered.machines[host] = host_samples, machine
        gathered.attempts.update(
            {
                task: [make_attempt_from_row(task, row) for row in rows]
                for task, rows in machine.attempts.items()
            }
        )
    return gathered


def _read_host_samples(
    session: Session, plan: Plan
) -> tuple[dict[str, list[TaskSample]], list[HostSample], SampledHost]:
    name = session.host.name
    own_tasks = {task.task for task in plan.tasks if task.host == name}
    stream = session.agent().stream(SAMPLES, plan.run_args, silence_s=SILENCE_S)
    tasks: dict[str, list[TaskSample]] = {}
    host_samples: list[HostSample] = []
    for item, blob in stream:
        if item.task not in ("", *own_tasks) or item.task in tasks:
            raise BadAnswer("the host sent samples of another host's task", where=name)
        try:
            content = frames.decompress(blob, MOST_BYTES)
        except frames.WireError as error:
            raise BadAnswer(f"the host's samples cannot be read: {error}", where=name) from error
        if item.task:
            tasks[item.task] = list(_decode_samples(content, TaskSample))
        else:
            host_samples = list(_decode_samples(content, HostSample))
    if stream.value is None:
        raise BadAnswer("the host's answer to samples is incomplete", where=name)
    if not stream.value.attempts.keys() <= own_tasks:
        raise BadAnswer("the host sent attempts of another host's task", where=name)
    return tasks, host_samples, stream.value


def _decode_samples(content: bytes, kind: type[S]) -> Iterator[S]:
    """Yield the samples in the order of time.

    Skips invalid lines, because a full disk may have cut a line short. Also skips a sample whose
    time is earlier than that of the sample before it.
    """
    last = float("-inf")
    for line in content.splitlines():
        try:
            sample = decode(line, kind)
        except (msgspec.DecodeError, RecursionError):
            continue
        if sample.time >= last:
            last = sample.time
            yield sample
