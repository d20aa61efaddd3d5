"""Test what a launch shows on a terminal: text up to the step `start`, then the dashboard, and text
again after `q` or a failure.
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
    """Return a launch dashboard that draws nothing, and the events that it shows as text."""

    @contextmanager
    def undrawn(self: Dashboard) -> Iterator[None]:
        yield

    monkeypatch.setattr(Dashboard, "drawn_beside", undrawn)
    shown: list[Event] = []
    yield LaunchDashboard(CommonFlags(), RUN, shown.append), shown


def test_the_dashboard_gets_all_from_the_beginning(
    beginning: tuple[LaunchDashboard, list[Event]], capsys: pytest.CaptureFixture[str]
) -> None:
    made, shown = beginning
    with made:
        for one in BEFORE:
            made(one)
        assert made.board is None and shown == BEFORE
        made(START)
        assert made.board is not None and capsys.readouterr().out == f"{RUN}\n"
        made.board.apply_events()
        assert made.board.progress.hosts["n1"].state == "connected"
        made(event("run", 1003.0, state="running"))
        made.board.apply_events()
        assert made.board.progress.state == "running"
    assert shown == [*BEFORE, START]


def test_after_q_it_goes_on_in_words(beginning: tuple[LaunchDashboard, list[Event]]) -> None:
    made, shown = beginning
    late = event("step", 1003.0, step="commit", state="begin")
    with made:
        made(START)
        assert made.board is not None and not made.has_quit
        made.board.view.key("q")
        made(late)
        assert made.has_quit
    assert shown == [START, late]


def test_what_the_dashboard_hid_is_told_when_the_launch_fails(
    beginning: tuple[LaunchDashboard, list[Event]],
) -> None:
    made, shown = beginning
    dead = event("task", 1003.0, "n1", "ps:0", state="ended", outcome="failed", exit_code=1)
    with pytest.raises(KeyError), made:
        made(START)
        made(dead)
        raise KeyError
    assert shown == [START, dead]


def test_a_launch_that_ends_before_its_step_start_has_only_words(
    beginning: tuple[LaunchDashboard, list[Event]],
) -> None:
    made, shown = beginning
    with pytest.raises(KeyError), made:
        made(BEFORE[0])
        raise KeyError
    assert shown == BEFORE[:1] and not made.has_quit
