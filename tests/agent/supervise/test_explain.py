"""Test the prediction whether the next attempt of a task would fail in the same way. If an attempt
made training steps, no such failure is predicted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdeploy.agent import layout, wire
from tfdeploy.agent.host.atomic import write_json
from tfdeploy.agent.log.format import LogWriter
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.shapes import Ending
from tfdeploy.agent.supervise.explain import explain_failure

STARTED = 1000.0
PRINTED = (
    b'Traceback (most recent call last):\n  File "/x/train.py", line 3, in <module>\n    '
    b"{}[\"shard\"]\nKeyError: 'shard'\n"
)


UNHEALTHY = (
    b"The following tasks are unhealthy (stopped sending heartbeats):\n"
    b"/job:worker/replica:0/task:1\n"
)


@pytest.mark.parametrize(
    ("round_number", "begins"), [(2, "worker:1 ended with exit code 0"), (1, "TensorFlow heard")]
)
def test_task_of_same_round_that_succeeded_explains_silence(
    tmp_path: Path, round_number: int, begins: str
) -> None:
    paths = RunPaths(layout.host_dir(str(tmp_path), "j", "r", "n1"))
    part = wire.HostPart(run="r", job="j", mode="async", host="n1", plan_digest="d", release="c")
    status = wire.TaskStatus(run="r", task="worker:0", host="n1", round=2, exit_code=1)
    Path(paths.task_dir("worker:0")).mkdir(parents=True)
    LogWriter(paths.task_dir("worker:0"), 1 << 20).append(UNHEALTHY, 1, 2, STARTED)
    ended: Ending = {"outcome": "succeeded", "time": STARTED, "round": round_number}
    paths.write_state(
        wire.HostRunState(run="r", job="j", host="n1", ended_tasks={"worker:1": ended})
    )
    reason, error = explain_failure(paths, part, status, len(UNHEALTHY), 1.0)
    assert (reason or "").startswith(begins) and error == ""


@pytest.mark.parametrize(("step_time", "error"), [(1001.0, ""), (999.0, "KeyError (train.py:3)")])
def test_a_step_in_event_files_counts_where_this_attempt_wrote_it(
    tmp_path: Path, step_time: float, error: str
) -> None:
    paths = RunPaths(layout.host_dir(str(tmp_path), "j", "r", "n1"))
    part = wire.HostPart(run="r", job="j", mode="async", host="n1", plan_digest="d", release="c")
    status = wire.TaskStatus(
        run="r", task="worker:0", host="n1", attempt=2, started=STARTED, exit_code=1
    )
    Path(paths.task_dir("worker:0")).mkdir(parents=True)
    LogWriter(paths.task_dir("worker:0"), 1 << 20).append(PRINTED, 1, 2, STARTED)
    sample = {
        "time": 1001.0,
        "attempt": 2,
        "printed": {"step": 7.0, "logs/loss": 0.5},
        "step_time": step_time,
    }
    write_json(
        paths.file(layout.NEWEST_SAMPLES), {"host": {"time": 1001.0}, "tasks": {"worker:0": sample}}
    )
    assert explain_failure(paths, part, status, len(PRINTED), 1.0) == (
        "KeyError: 'shard' (train.py:3)",
        error,
    )
