"""Test that all views show the same duration of a run, and the same times for its events."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from support.dashboard_scenes import PLAN, RUN, event
from support.recorded import fold_events
from support.rows import row_text
from tfdeploy.agent.wire import HostRunState, TaskStatus
from tfdeploy.model.events import Event
from tfdeploy.model.plan import plan_to_json
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.report.run_report import RunReport
from tfdeploy.model.status.run_status import run_view, run_view_json
from tfdeploy.operations.run_lookup.find_run import FoundRun
from tfdeploy.operations.runs import list_runs
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.store.runs import RunStore
from tfdeploy.ui.dashboard.header import head_row
from tfdeploy.ui.dashboard.log_buffer import LogBuffer
from tfdeploy.ui.dashboard.scene import Frame, Scene
from tfdeploy.ui.dashboard.view_state import ViewState
from tfdeploy.ui.report.page import report_page
from tfdeploy.ui.reports import show_runs, show_status
from tfdeploy.ui.summary import show_summary
from tfdeploy.ui.terminal import Terminal

LAUNCHED, STARTED, ENDED, NOTICED, NOW = (
    PLAN.created,
    PLAN.created + 17,
    PLAN.created + 250,
    PLAN.created + 262,
    1600.0,
)
STATES = {
    host.host: HostRunState(
        run=RUN, job="digits", host=host.host, phase="ended", started=STARTED, ended=ENDED
    )
    for host in PLAN.hosts
}
TASKS = {
    task.task: TaskStatus(
        run=RUN,
        task=task.task,
        host=task.host,
        attempt=1,
        state="ended",
        outcome="succeeded",
        started=STARTED,
        ended=ENDED,
    )
    for task in PLAN.tasks
}
VIEW = run_view(PLAN, STATES, TASKS)


def events() -> list[Event]:
    """Return the events that a launch records. The launch notices the end of the run some time
    after the run has ended.
    """
    recorded: list[Event] = [
        Event(kind="plan", time=LAUNCHED + 1, run=RUN, data=plan_to_json(PLAN))
    ]
    recorded.append(event("note", LAUNCHED + 2, level="info", text="code is sent"))
    fleet: Any = None
    watch = Watch(fleet, PLAN, recorded.append)
    watch.emit_run_if_changed(VIEW)
    return [*recorded[:-1], Event(kind="run", time=NOTICED, run=RUN, data=recorded[-1].data)]


def test_duration_of_run_is_same_in_every_view(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    progress = RunProgress()
    fold_events(progress, events())
    ring = LogBuffer()
    scene = Scene(progress=progress, ring=ring, view=ViewState(ring=ring, progress=progress))
    frame = Frame(scene=scene, troubles={}, shown=(), width=80, height=24, now=NOW)
    assert row_text(head_row(frame)).startswith("succeeded 4:10 ")
    out = io.StringIO()
    show_summary(Terminal(out, None, False), progress, now=NOW)
    show_status(Terminal(out, None, False), VIEW, NOW)
    assert out.getvalue().count("succeeded after 4:10\n") == 2
    report = RunReport(plan=PLAN, view=VIEW, made=NOW, events=tuple(events()))
    assert "</b> &middot; 4:10 &middot;" in report_page(report)
    assert '<td class="n dim">+2.0 s</td><td class="">code is sent</td>' in report_page(report)

    known = FoundRun(run=RUN, job="digits", states=dict(STATES), tasks=dict(TASKS))
    monkeypatch.setattr("tfdeploy.operations.runs.find_runs", lambda *about: ([known], {}))
    monkeypatch.setattr("tfdeploy.operations.runs.read_plan", lambda *about: PLAN)
    fleet: Any = None
    (row,), _ = list_runs(fleet, (), RunStore(tmp_path), job="digits")
    out = io.StringIO()
    show_runs(Terminal(out, None, False), [row], NOW)
    assert "  4:10  " in out.getvalue()
    answer = run_view_json(VIEW)
    assert (row["started"], row["ended"]) == (answer["started"], answer["ended"])
