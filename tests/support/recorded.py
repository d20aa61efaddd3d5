"""Replay recorded events of a run, including log lines of its tasks, to a view or a RunProgress."""

from __future__ import annotations

from collections.abc import Iterable

from dashboard_svg import line_of
from tfdeploy.model.events import Event
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.ui.dashboard.dashboard import Dashboard
from tfdeploy.ui.plain import PlainView


def replay_to_view(view: Dashboard | PlainView, told: Event) -> None:
    if told.kind == "line":
        view.take_lines([line_of(told)])
    else:
        view(told)


def fold_events(progress: RunProgress, told: Iterable[Event]) -> RunProgress:
    for one in told:
        if one.kind == "line":
            line = line_of(one)
            progress.take_lines(line.task, line.host, line.time, [one.data["line"]], 1)
        else:
            progress.apply_event(one)
    return progress
