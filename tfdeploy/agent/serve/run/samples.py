"""Answers `samples`: sends what the tasks of a run have used (such as memory) and printed (such as
losses) on this host so far, and their attempts. The modules in sampling/ have written these
samples.

Changes nothing.
"""

from __future__ import annotations

import os

from tfdeploy.agent import frames, layout
from tfdeploy.agent.annotations import TYPE_CHECKING
from tfdeploy.agent.call import Call
from tfdeploy.agent.run.attempts import list_attempts
from tfdeploy.agent.sampling import counters
from tfdeploy.agent.sampling.series import MOST_BYTES
from tfdeploy.agent.serve.run.status import named_run_paths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer


def send_samples(call: Call) -> Answer:
    """Send the samples of the host and of each task. The blob of an item is packed text with one
    JSON object per line: TaskSample or HostSample of agent/shapes.py.

    Args: run, job.

    Raises VerbError unknown_run.
    """
    paths = named_run_paths(call)
    tasks = paths.tasks()
    for task in ["", *tasks]:
        folder = paths.task_dir(task) if task else paths.host_dir
        try:
            with open(os.path.join(folder, layout.SAMPLES), "rb") as file:
                content = file.read(2 * MOST_BYTES)
        except FileNotFoundError:
            continue
        call.item({"task": task}, frames.compress(content))
    return {
        "cores": os.cpu_count() or 1,
        "memory": counters.read_machine_counters().memory_total,
        "attempts": {task: list_attempts(paths, task) for task in tasks},
    }


VERBS = {"samples": send_samples}
