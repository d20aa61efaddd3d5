"""Test that this version lists, reads and stops runs that other versions have written.

`tests/golden/runs` was recorded on a host with an older version of tfdeploy, which did not restart
tasks. The run recorded-1 had succeeded, and recorded-2 was running when the host lost power.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent import layout
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.frames import decompress
from tfdeploy.agent.serve.server import find_verb
from tfdeploy.agent.wire import HostRunState, TaskStatus, from_wire
from tfdeploy.model.plan_files import plan_from_file, read_untrusted_plan
from tfdeploy.model.status.run_status import run_view

RECORDED = Path(__file__).parents[3] / "golden" / "runs"
NAMED = ("cluster", "data", "env", "links", "marks", "metrics", "ended", "ended_tasks")
FILES = ("part.json", "state.json", "knowledge.json", "status.json", "plan.json")


def with_unknown(value: Any, named: bool = False) -> Any:
    """Return the value as a later version may write it, with a higher version number and additional
    fields in each object.

    If `named` is True, the keys of the value are names of tasks or hosts. Then only the objects in
    the value get additional fields, but not the value itself.
    """
    if isinstance(value, list):
        return [with_unknown(one) for one in value]
    if not isinstance(value, dict):
        return value
    known = {name: with_unknown(one, name in NAMED) for name, one in value.items()}
    more = {
        "to_come": {"deep": [1, {"er": None}]},
        **({"version": 99} if "version" in known else {}),
    }
    return known if named else {**known, **more}


@pytest.fixture(params=["as recorded", "of a version to come"])
def context(request: pytest.FixtureRequest, tmp_path: Path) -> SessionContext:
    shutil.copytree(RECORDED, layout.runs_dir(str(tmp_path), "recorded"))
    if request.param == "of a version to come":
        for path in tmp_path.rglob("*.json"):
            assert path.name in FILES
            path.write_text(json.dumps(with_unknown(json.loads(path.read_text()))))
    return SessionContext(str(tmp_path), "")


def ask(context: SessionContext, verb: str, run: str = "", **args: Any) -> Any:
    named = {"job": "recorded", **({"run": run} if run else {}), **args}
    return find_verb(verb)(Call(context, named))


def read(context: SessionContext, run: str) -> bytes:
    got: list[bytes] = []
    call = Call(
        context,
        {"job": "recorded", "run": run, "follow": True},
        b"",
        lambda header, blob: got.append(blob),
    )
    assert find_verb("logs")(call)["ended"]
    return b"".join(got)


def shown_plan(context: SessionContext, run: str) -> bytes:
    got: list[bytes] = []
    assert (
        find_verb("run.plan")(
            Call(context, {"job": "recorded", "run": run}, b"", lambda item, blob: got.append(blob))
        )
        == {}
    )
    return decompress(got[0])


def test_they_are_listed_and_read(context: SessionContext) -> None:
    rows = {row["run"]: row for row in ask(context, "runs")}
    assert sorted(rows) == ["recorded-1", "recorded-2"] and not any(
        row["live"] for row in rows.values()
    )
    good, lost = (rows[run]["tasks"][0] for run in ("recorded-1", "recorded-2"))
    assert (good["state"], good["outcome"], good["exit_code"]) == ("ended", "succeeded", 0)
    assert (lost["state"], lost["outcome"], lost["reason"]) == ("lost", "lost", "host rebooted")
    assert read(context, "recorded-1").endswith(b"step 6 loss 0.1667\ndone at step 6\n")
    assert read(context, "recorded-2").endswith(b"step 2 loss 0.5000\n")


def test_their_plans_and_states_are_understood_by_the_control_side(context: SessionContext) -> None:
    for run, state in (("recorded-1", "succeeded"), ("recorded-2", "lost")):
        text = shown_plan(context, run)
        plan = plan_from_file(text)
        assert read_untrusted_plan(text, run, "recorded", {}).tasks[0].task == plan.tasks[0].task
        answer = ask(context, "run.status", run)
        outcome = from_wire(HostRunState, answer["host_state"])
        tasks = {row["task"]: from_wire(TaskStatus, row) for row in answer["tasks"]}
        assert (plan.run, plan.hosts[1].ssh["user"]) == (run, "op")
        assert run_view(plan, {"n2": outcome}, tasks).state == state


def test_they_are_stopped(context: SessionContext) -> None:
    for run in ("recorded-1", "recorded-2"):
        assert ask(context, "run.stop", run, grace_s=0.0)["survivors"] == []
    state, row = (
        ask(context, "run.status", "recorded-2")[name] for name in ("host_state", "tasks")
    )
    assert (state["phase"], state["stop_requested"], row[0]["outcome"]) == ("ended", True, "lost")
    assert ask(context, "run.status", "recorded-1")["tasks"][0]["outcome"] == "succeeded"
