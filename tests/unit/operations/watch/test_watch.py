"""Test which events a watch of a run creates from the reports of hosts, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tfdeploy.agent import wire
from tfdeploy.errors import AgentError
from tfdeploy.model.answers.runs import RunChange
from tfdeploy.model.answers.samples import HostSample, NewestSamples, TaskSample
from tfdeploy.model.events import Event
from tfdeploy.model.plan import Plan, TaskPlan
from tfdeploy.model.status.run_status import RunView
from tfdeploy.operations.watch.watch import Watch

WORKER = TaskPlan(
    task="worker:0",
    role="worker",
    index=0,
    host="n2",
    address="",
    port=None,
    gpus=(),
    argv=("python", "x.py"),
    env={},
    deciding=True,
    why="",
)
PLAN = Plan(
    run="r1",
    job="j",
    mode="async",
    created=1.0,
    operator="me@here",
    release="c0ffee",
    command=("python", "x.py"),
    cluster={},
    hosts=(),
    tasks=(WORKER,),
    deciding=(),
    flags_appended=(),
)


def view(state: str, cause: str | None = None) -> RunView:
    return RunView(
        run="r1", job="j", mode="async", state=state, started=1.0, ended=None, tasks=(), cause=cause
    )


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
        watch.emit_run(each)
    assert [(event.data["state"], event.data["cause"]) for event in told] == [
        ("running", "n3 rebooted"),
        ("running", None),
        ("succeeded", None),
    ]


def test_a_metric_that_its_host_does_not_read_any_more_is_told_once() -> None:
    told: list[Event] = []
    fleet: Any = None
    watch = Watch(fleet, replace(PLAN, metrics={"acc": "(a+)+$", "step": "step"}), told.append)
    for stopped in ([], ["acc"], ["acc", "a name that the job lacks"], ["acc"]):
        task = TaskSample(time=1.0, stopped=stopped)
        watch.receive(
            "n2", RunChange(samples=NewestSamples(HostSample(time=1.0), {"worker:0": task}))
        )
    notes = [event.data for event in told if event.kind == "note"]
    text = "worker:0: acc: not read any more: the regular expression takes too long for its lines"
    assert notes == [{"level": "warning", "text": text}] and watch.stopped == {"worker:0": ["acc"]}


def test_a_host_whose_run_folder_was_removed_has_lost_its_task() -> None:
    told: list[Event] = []
    fleet: Any = None
    watch = Watch(fleet, PLAN, told.append)
    running = wire.TaskStatus(
        run="r1", task="worker:0", host="n2", attempt=1, state="running", pid=35, up=True
    )
    watch.receive("n2", RunChange(task=running))
    watch.receive("n2", AgentError("this host knows no run r1", code="unknown_run"))
    assert (watch.tasks["worker:0"].state, watch.tasks["worker:0"].pid) == ("lost", 35)
    assert [event.data["state"] for event in told if event.kind == "task"] == ["running", "lost"]
