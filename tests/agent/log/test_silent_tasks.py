"""Test how the agent finds, in a task's log, the tasks that TensorFlow reports as silent. The logs
are from TensorFlow 2.21 in a mirrored run of three workers, one of which was frozen for 10 s.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdeploy.agent.log import silent_tasks
from tfdeploy.agent.log.format import LOG
from tfdeploy.agent.shapes import Ending

ERROR = b"""tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:

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
TWO = ERROR.replace(b"task:1\nThe", b"task:1\n/job:chief/replica:0/task:0\nThe")


@pytest.mark.parametrize(
    ("said", "own", "blamed"),
    [
        (ERROR, "worker:0", "TensorFlow heard nothing more of worker:1"),
        # worker:1 itself was cut off. So its log only repeats what the other tasks reported about
        # worker:1.
        (ERROR, "worker:1", None),
        (TWO, "worker:0", "TensorFlow heard nothing more of chief:0, worker:1"),
        (
            ERROR + ERROR.replace(b"/task:1", b"/task:2"),
            "worker:0",
            "TensorFlow heard nothing more of worker:2",
        ),
        # The task has printed 1 MiB since the error, so the error is old.
        (ERROR + b"." * (1 << 20), "worker:0", None),
        (b"ValueError: unhealthy (stopped sending heartbeats): me\n", "worker:0", None),
        (b"", "worker:0", None),
    ],
)
def test_the_silent_ones_are_named(
    tmp_path: Path, said: bytes, own: str, blamed: str | None
) -> None:
    (tmp_path / LOG).write_bytes(b"step 1 loss 0.5\n" + said)
    assert (
        silent_tasks.describe_tasks_without_heartbeat(str(tmp_path), own, len(said), {}) == blamed
    )


def test_what_an_earlier_attempt_said_blames_nobody(tmp_path: Path) -> None:
    own = b"ValueError: of this attempt\n"
    (tmp_path / LOG).write_bytes(ERROR + own)
    assert (
        silent_tasks.describe_tasks_without_heartbeat(str(tmp_path), "worker:0", len(own), {})
        is None
    )


def test_no_log_is_no_blame(tmp_path: Path) -> None:
    assert silent_tasks.describe_tasks_without_heartbeat(str(tmp_path), "worker:0", 100, {}) is None


def test_task_that_succeeded_before_is_named_as_cause(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(ERROR)
    ended: dict[str, Ending] = {"worker:1": {"outcome": "succeeded", "time": 1.8e9 + 5}}
    assert silent_tasks.describe_tasks_without_heartbeat(
        str(tmp_path), "worker:0", len(ERROR), ended
    ) == (
        "worker:1 ended with exit code 0 at 08:00:05 UTC, and worker:0 still waited for it: give "
        "all workers the same number of steps, and let all of them call evaluate and save"
    )
    ended["worker:1"]["outcome"] = "killed"
    assert silent_tasks.describe_tasks_without_heartbeat(
        str(tmp_path), "worker:0", len(ERROR), ended
    ) == ("TensorFlow heard nothing more of worker:1")
