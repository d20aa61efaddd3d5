"""Test how one host tells another host that a run has ended, and when that host accepts the
message.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.agent.answer_types import unknown
from support.agent.client import make_run
from support.agent.cluster import NewClient
from tfdeploy.agent.mesh import forwarded_end
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.model.answers.runs import RUN_KNOWN


@pytest.mark.parametrize(
    "reason",
    ["", "the disk is full; " * 16, "\u5931\u6557" * 150],
    ids=["short", "long", "any script"],
)
def test_the_end_of_a_run_of_many_deciding_tasks_is_carried_whole(
    serve: NewClient, tmp_path: Path, reason: str
) -> None:
    tasks = [f"worker:{number}" for number in range(2000 if reason > "z" else 4500)]
    folder = make_run(tmp_path, "r1", "committed").parents[1]
    part = json.loads((folder / "part.json").read_text())
    part["peers"] = [
        {"task": task, "role": "worker", "host": "n1", "deciding": True} for task in tasks
    ]
    (folder / "part.json").write_text(json.dumps(part))
    how = {
        "attempt": 1,
        "round": 1,
        "final": True,
        "outcome": "succeeded",
        "time": 1.5e9,
        "host": "n1",
        "up": True,
        "exit_code": 0,
    }
    ended: dict[str, Any] = {
        task: {**how, **({"reason": reason[:300]} if reason else {})} for task in tasks
    }
    (folder / "knowledge.json").write_text(
        json.dumps({"committed": True, "ended": ended, "decided": 1.5e9})
    )
    client = serve()
    answer = client.call("run.known", run="r1", job="job")["value"]
    assert unknown(answer, RUN_KNOWN.value) == [] and len(answer["known"]) > 1 << 19
    assert client.call("run.tell", run="r1", job="job", known=answer["known"]) == {
        "id": 2,
        "value": {},
    }
    paths = RunPaths(str(folder))
    assert forwarded_end.take_forwarded_run_end(paths, paths.part()).ended == ended
