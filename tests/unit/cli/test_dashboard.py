"""Test what a launch shows on a terminal: text until the step `start` begins, then the dashboard,
and again text after the key `q` or after a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.dashboard_scenes import RUN, event
from tfdeploy.cli.dashboard import LaunchDashboard
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.model.events import Event
from tfdeploy.ui.dashboard.dashboard import Dashboard

START = event("step", 1002.0, step="start", state="begin")
BEFORE = [
    event("step", 1000.0, step="lock", state="begin"),
    event("host", 1000.5, "n1", state="connected"),
]


@pytest.fixture
def beginning(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LaunchDashboard, list[Event]]]:
    """Yield a launch dashboard that draws nothing, and the list of events that it has printed."""

    @contextmanager
    def undrawn(self: Dashboard) -> Iterator[None]:
        yield

    monkeypatch.setattr(Dashboard, "draw_in_thread", undrawn)
    shown: list[Event] = []
    yield LaunchDashboard(CommonFlags(), RUN, shown.append), shown


def test_dashboard_gets_all_events_from_start(
    beginning: tuple[LaunchDashboard, list[Event]], capsys: pytest.CaptureFixture[str]
) -> None:
    launch_dashboard, shown = beginning
    with launch_dashboard:
        for early_event in BEFORE:
            launch_dashboard(early_event)
        assert launch_dashboard.board is None and shown == BEFORE
        launch_dashboard(START)
        assert launch_dashboard.board is not None and capsys.readouterr().out == f"{RUN}\n"
        launch_dashboard.board.apply_events()
        assert launch_dashboard.board.progress.hosts["n1"].state == "connected"
        launch_dashboard(event("run", 1003.0, state="running"))
        launch_dashboard.board.apply_events()
        assert launch_dashboard.board.progress.state == "running"
    assert shown == [*BEFORE, START]


def test_launch_continues_as_text_after_q(beginning: tuple[LaunchDashboard, list[Event]]) -> None:
    launch_dashboard, shown = beginning
    late = event("step", 1003.0, step="commit", state="begin")
    with launch_dashboard:
        launch_dashboard(START)
        assert launch_dashboard.board is not None and not launch_dashboard.has_quit
        launch_dashboard.board.view.handle_key("q")
        launch_dashboard(late)
        assert launch_dashboard.has_quit
    assert shown == [START, late]


def test_failed_launch_prints_events_that_dashboard_hid(
    beginning: tuple[LaunchDashboard, list[Event]],
) -> None:
    launch_dashboard, shown = beginning
    dead = event("task", 1003.0, "n1", "ps:0", state="ended", outcome="failed", exit_code=1)
    with pytest.raises(KeyError), launch_dashboard:
        launch_dashboard(START)
        launch_dashboard(dead)
        raise KeyError
    assert shown == [START, dead]


def test_launch_that_ends_before_step_start_prints_only_text(
    beginning: tuple[LaunchDashboard, list[Event]],
) -> None:
    launch_dashboard, shown = beginning
    with pytest.raises(KeyError), launch_dashboard:
        launch_dashboard(BEFORE[0])
        raise KeyError
    assert shown == BEFORE[:1] and not launch_dashboard.has_quit
