"""Test which Python interpreter starts TensorBoard on a host if the control machine does not name
one: the interpreter that the host's copy of the plan names.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfdeploy.agent import layout
from tfdeploy.agent.run import shown_plan
from tfdeploy.agent.run.folder import RunPaths


@pytest.mark.parametrize(
    ("plan", "python"),
    [
        (
            {"hosts": [{"host": "n1", "python": "/bin/one"}, {"host": "n2", "python": "/bin/two"}]},
            "/bin/two",
        ),
        ({"hosts": [{"host": "n1", "python": "/bin/one"}]}, "python3"),
        ({}, "python3"),
        (None, "python3"),
    ],
)
def test_the_plan_here_says_which_python(tmp_path: Path, plan: object, python: str) -> None:
    paths = RunPaths(layout.host_dir(str(tmp_path), "j", "r", "n2"))
    Path(paths.run_dir).mkdir(parents=True)
    if plan is not None:
        (Path(paths.run_dir) / "plan.json").write_text(json.dumps(plan))
    planned = shown_plan.planned_python(paths.workdir, paths.job, paths.run, paths.host)
    assert (planned or "python3") == python
