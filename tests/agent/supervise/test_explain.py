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
from tfdeploy.agent.supervise.explain import explain_failure

STARTED = 1000.0
PRINTED = (
    b'Traceback (most recent call last):\n  File "/x/train.py", line 3, in <module>\n    '
    b"{}[\"shard\"]\nKeyError: 'shard'\n"
)


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
