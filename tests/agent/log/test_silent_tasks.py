"""Test how the agent finds, in a task's log, the tasks that TensorFlow reports as silent. The logs
are from TensorFlow 2.21 in a mirrored run of three workers, one of which was frozen for 10 s.
"""

from __future__ import annotations

import pytest

from tfdeploy.agent.log import silent_tasks
from tfdeploy.agent.shapes import Ending

ERROR = """tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:

Collective ops is aborted by: \
Error reported from /job:worker/task:1: \
The following tasks are unhealthy (stopped sending heartbeats):
/job:worker/replica:0/task:1
The tasks have crashed. \
Check the task logs for an earlier error, \
or scheduler events (e.g. preemption, eviction) to debug further.
The error could be from a previous operation. Restart your program to reset.
\t [[{{node CollectiveReduceV2_3}}]] [Op:__inference_train_function_1634]
"""
TWO = ERROR.replace("task:1\nThe", "task:1\n/job:chief/replica:0/task:0\nThe")


@pytest.mark.parametrize(
    ("said", "own", "blamed"),
    [
        (ERROR, "worker:0", "TensorFlow heard nothing more of worker:1"),
        # worker:1 itself was cut off. So its log only repeats what the other tasks reported about
        # worker:1.
        (ERROR, "worker:1", None),
        (TWO, "worker:0", "TensorFlow heard nothing more of chief:0, worker:1"),
        (
            ERROR + ERROR.replace("/task:1", "/task:2"),
            "worker:0",
            "TensorFlow heard nothing more of worker:2",
        ),
        # The task has printed 1 MiB since the error, so the error is old.
        (ERROR + "." * (1 << 20), "worker:0", None),
        ("ValueError: unhealthy (stopped sending heartbeats): me\n", "worker:0", None),
        ("", "worker:0", None),
    ],
)
def test_the_silent_ones_are_named(said: str, own: str, blamed: str | None) -> None:
    output = "step 1 loss 0.5\n" + said
    assert silent_tasks.describe_tasks_without_heartbeat(output, own, {}) == blamed


def test_task_that_succeeded_before_is_named_as_cause() -> None:
    ended: dict[str, Ending] = {"worker:1": {"outcome": "succeeded", "time": 1.8e9 + 5}}
    assert silent_tasks.describe_tasks_without_heartbeat(ERROR, "worker:0", ended) == (
        "worker:1 ended with exit code 0 at 08:00:05 UTC, and worker:0 still waited for it: give "
        "all workers the same number of steps, and let all of them call evaluate and save"
    )
    ended["worker:1"]["outcome"] = "killed"
    assert silent_tasks.describe_tasks_without_heartbeat(ERROR, "worker:0", ended) == (
        "TensorFlow heard nothing more of worker:1"
    )
