"""Test which events a client that watches a run creates from the hosts' reports, and when."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from tfdeploy.agent import wire
from tfdeploy.errors import AgentError, HostUnreachable
from tfdeploy.model.answers.runs import RunChange
from tfdeploy.model.answers.samples import HostSample, NewestSamples, TaskSample
from tfdeploy.model.events import Event
from tfdeploy.model.plan import HostPlan, Plan, TaskPlan
from tfdeploy.model.status.run_status import RunView
from tfdeploy.operations.watch.listen import start_listening
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


def test_state_is_reported_once_and_recovery_too() -> None:
    events: list[Event] = []
    fleet: Any = None
    watch = Watch(fleet, PLAN, events.append)
    for reported_view in (
        view("running", "n3 rebooted"),
        view("running", "n3 rebooted"),
        view("running"),
        view("running"),
        view("succeeded"),
    ):
        watch.emit_run_if_changed(reported_view)
    assert [(event.data["state"], event.data["cause"]) for event in events] == [
        ("running", "n3 rebooted"),
        ("running", None),
        ("succeeded", None),
    ]


def test_metric_no_longer_read_by_host_is_reported_once() -> None:
    events: list[Event] = []
    fleet: Any = None
    watch = Watch(fleet, replace(PLAN, metrics={"acc": "(a+)+$", "step": "step"}), events.append)
    for stopped in ([], ["acc"], ["acc", "a name that the job lacks"], ["acc"]):
        task = TaskSample(time=1.0, stopped=stopped)
        watch.receive_report(
            "n2", RunChange(samples=NewestSamples(HostSample(time=1.0), {"worker:0": task}))
        )
    notes = [event.data for event in events if event.kind == "note"]
    text = (
        "worker:0: no new values of acc: the regular expression takes too long for the task's lines"
    )
    assert notes == [{"level": "warning", "text": text}] and watch.stopped == {"worker:0": ["acc"]}


def test_task_is_lost_if_host_lost_run_folder() -> None:
    events: list[Event] = []
    fleet: Any = None
    watch = Watch(fleet, PLAN, events.append)
    running = wire.TaskStatus(
        run="r1", task="worker:0", host="n2", attempt=1, state="running", pid=35, up=True
    )
    watch.receive_report("n2", RunChange(task=running))
    watch.receive_report("n2", AgentError("this host knows no run r1", code="unknown_run"))
    assert (watch.tasks["worker:0"].state, watch.tasks["worker:0"].pid) == ("lost", 35)
    assert [event.data["state"] for event in events if event.kind == "task"] == ["running", "lost"]


def test_session_that_is_closed_at_the_end_is_no_unreachable_host() -> None:
    stop, ended = threading.Event(), threading.Event()

    class ClosingFleet:
        def connect(self, hosts: Any) -> Any:
            stop.set()
            return {"n2": HostUnreachable("the session was closed", where="n2")}

    class EndingWatch(Watch):
        def mark_reports_ended(self, host: str) -> None:
            super().mark_reports_ended(host)
            ended.set()

    events: list[Event] = []
    fleet: Any = ClosingFleet()
    host = HostPlan(
        host="n2",
        address="10.0.0.2",
        mesh_port=0,
        workdir="/w",
        python="python3",
        ssh={"name": "n2", "address": "n2"},
    )
    start_listening(EndingWatch(fleet, replace(PLAN, hosts=(host,)), events.append), stop)
    assert ended.wait(10)
    assert events == []
