"""What a watch tells of a run, and when."""

from __future__ import annotations

from typing import Any

from tfdeploy.agent import wire
from tfdeploy.errors import AgentError
from tfdeploy.model.answers.runs import News
from tfdeploy.model.events import Event
from tfdeploy.model.plan import Plan, TaskPlan
from tfdeploy.model.status import RunView
from tfdeploy.operations.watch.watch import Watch

WORKER = TaskPlan("worker:0", "worker", 0, "n2", "", None, (), ("python", "x.py"), {}, True, "")
PLAN = Plan("r1", "j", "async", 1.0, "me@here", "c0ffee", ("python", "x.py"), {}, (), (WORKER,), (), ())


def view(state: str, cause: str | None = None) -> RunView:
    return RunView("r1", "j", "async", state, 1.0, None, (), cause=cause)


def test_a_state_is_told_once_and_that_all_is_well_again() -> None:
    told: list[Event] = []
    fleet: Any = None
    watch = Watch(fleet, PLAN, told.append)
    for each in (
        view("running", "n3 rebooted"),
        view("running", "n3 rebooted"),
        view("running"),
        view("running"),
        view("succeeded"),
    ):
        watch.tell(each)
    assert [(event.data["state"], event.data["cause"]) for event in told] == [
        ("running", "n3 rebooted"),
        ("running", None),
        ("succeeded", None),
    ]


def test_a_host_whose_run_folder_was_removed_has_lost_its_task() -> None:
    told: list[Event] = []
    fleet: Any = None
    watch = Watch(fleet, PLAN, told.append)
    running = wire.TaskStatus("r1", "worker:0", "n2", attempt=1, state="running", pid=35, up=True)
    watch.take("n2", News(task=running))
    watch.take("n2", AgentError("this host knows no run r1", code="unknown_run"))
    assert (watch.tasks["worker:0"].state, watch.tasks["worker:0"].pid) == ("lost", 35)
    assert [event.data["state"] for event in told if event.kind == "task"] == ["running", "lost"]
