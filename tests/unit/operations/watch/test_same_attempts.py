"""Test that each view shows the same attempts of a task, whenever and however often tfdeploy asked
the hosts.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest

from support.dashboard_scenes import PLAN
from support.recorded import fold_events
from support.task_history import HOST, TASK, History, PastAttempt
from tfdeploy.model.answers.samples import AttemptRow
from tfdeploy.model.events import Event, event_from_json, event_to_json
from tfdeploy.model.progress.trouble import classify_tasks
from tfdeploy.model.report.run_report import RunReport, collect_attempts
from tfdeploy.model.status.run_status import run_view
from tfdeploy.model.status.task_status import Attempt, Samples, make_attempt_from_row
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.ui.cells import Row
from tfdeploy.ui.dashboard.dashboard import Dashboard
from tfdeploy.ui.dashboard.scene import Frame
from tfdeploy.ui.dashboard.timeline_page import timeline_page
from tfdeploy.ui.report.charts import draw_timeline

BEGAN, DIED, AGAIN, NOW = 1000.0, 1038.2, 1042.4, 1120.0
KILLED = History([PastAttempt(since=BEGAN, until=DIED), PastAttempt(since=AGAIN, until=None)])
FROM_THE_START = [BEGAN + 0.1 * number for number in range(1200)]
WATCHERS = {
    "from the start": FROM_THE_START,
    "from the start, who saw no end": [
        time for time in FROM_THE_START if not DIED <= time < DIED + 0.06
    ],
    "seldom": [BEGAN + 1, DIED - 20, AGAIN + 30],
    "between death and restart": [DIED + 1, AGAIN + 1],
    "later": [AGAIN + 50],
}


def events_of(history: History, request_times: Sequence[float]) -> list[Event]:
    """Return the events of a client that follows the run and asks the host at these times."""
    events: list[Event] = []
    fleet: Any = None
    watch = Watch(fleet, PLAN, events.append)
    for change in history.changes(request_times):
        watch.receive_report(HOST, change)
    return events


def rows_of(history: History, now: float) -> list[Attempt]:
    """Return the attempts that the host would report to a client (a report or a dashboard) that
    starts at the time `now`.
    """
    return [
        make_attempt_from_row(TASK, msgspec.convert(row, AttemptRow)) for row in history.rows(now)
    ]


def board_of(history: History, request_times: Sequence[float]) -> Dashboard:
    """Return a dashboard that has asked the host for its status at each of these times. At its
    start, the dashboard has also asked the host for earlier attempts.
    """
    board = Dashboard(PLAN)
    events = events_of(history, request_times)
    for event in events[:2]:
        board(event)
    board.apply_events()
    board.add_past_samples(Samples(attempts={TASK: rows_of(history, request_times[0])}))
    for event in events[2:]:
        board(event)
    board.apply_events()
    return board


def task_timeline(board: Dashboard) -> tuple[Row, list[str]]:
    """Return the row of the task in the timeline, and the texts about its deaths."""
    marked = classify_tasks(board.progress, {}, NOW)
    board.scene.unicode = True
    rows = timeline_page(
        Frame(scene=board.scene, troubles=marked, shown=[TASK], width=100, height=30, now=NOW), 30
    )
    deaths = [
        happening.folded_text
        for happening in board.happenings.in_order
        if happening.folded_text.startswith(f"{TASK}@{HOST} killed")
    ]
    return list(rows[1]), deaths


def page_of(
    history: History, events: Iterable[Event], now: float = NOW
) -> tuple[list[Attempt], str]:
    """Make a report from `events`, which this machine has recorded. Return the attempts in the
    report and the timeline of the report.
    """
    view = run_view(PLAN, {}, {TASK: history.status(now)})
    recorded = tuple(event_from_json(event_to_json(event)) for event in events)
    report = RunReport(
        plan=PLAN, view=view, made=now, events=recorded, attempts={TASK: rows_of(history, now)}
    )
    attempts_of_task = [attempt for attempt in collect_attempts(report) if attempt.task == TASK]
    return attempts_of_task, draw_timeline(attempts_of_task, BEGAN, now)


@pytest.mark.parametrize("watcher", WATCHERS)
def test_killed_attempt_is_red_in_every_view(watcher: str) -> None:
    request_times = WATCHERS[watcher]
    board, first = board_of(KILLED, request_times), board_of(KILLED, FROM_THE_START)
    assert [attempt.end_text for attempt in board.progress.attempts_of(TASK)] == [
        "killed: 9",
        "",
    ]
    row, deaths = task_timeline(board)
    assert (row, deaths) == task_timeline(first) and deaths == ["worker:1@n3 killed by signal 9"]
    assert [span.style for span in row[1:] if span.text.strip()] == ["red", "bold red", "green"], (
        row
    )

    attempts_without_events, page = page_of(KILLED, ())
    assert [(attempt.outcome, attempt.ended) for attempt in attempts_without_events] == [
        ("killed", DIED),
        (None, None),
    ]
    assert page_of(KILLED, events_of(KILLED, request_times)) == (attempts_without_events, page)
    assert 'class="bar bad"><title>worker:1, attempt 1: killed: 9 after 38 s</title>' in page


def test_death_is_shown_while_task_waits_to_restart() -> None:
    now = DIED + 2
    for request_times in ([BEGAN + 1, DIED - 1, now], [now]):
        (attempt,) = board_of(KILLED, request_times).progress.attempts_of(TASK)
        assert (attempt.outcome, attempt.signal, attempt.reason, attempt.ended) == (
            "killed",
            9,
            None,
            DIED,
        )
        assert page_of(KILLED, events_of(KILLED, request_times), now) == page_of(KILLED, (), now)


def test_end_of_attempt_is_known_without_event_of_older_version() -> None:
    """Test events from an older version of tfdeploy, which recorded no event for the end of an
    attempt.

    The host no longer lists the attempt. The end is known all the same, because the task waits for
    its restart, and the status of a waiting task says how the attempt ended.
    """
    events = [
        event
        for event in events_of(KILLED, [BEGAN + 1, DIED + 1])
        if event.data["state"] != "ended"
    ]
    board = Dashboard(PLAN)
    fold_events(board.progress, events)
    (attempt,) = board.progress.attempts_of(TASK)
    assert (attempt.outcome, attempt.reason, attempt.ended) == ("killed", None, DIED)


@pytest.mark.parametrize("seed", range(40))
def test_attempts_do_not_depend_on_times_of_requests(seed: int) -> None:
    """Test clients that follow a run and ask the host at random times: rarely, as if the connection
    was lost, or many times a second.
    """
    chance = random.Random(seed)
    ended_attempts, attempt_start = [], BEGAN
    for _ in range(chance.randint(1, 12)):
        attempt_end = attempt_start + chance.choice((0.3, 2.0, 40.0)) * chance.random()
        ways = (
            ("killed", None, 9, None),
            ("failed", 1, None, None),
            ("stopped", None, 15, "the gang starts again"),
        )
        outcome, exit_code, signal, reason = chance.choice(ways)
        ended_attempts.append(
            PastAttempt(
                since=attempt_start,
                until=attempt_end,
                outcome=outcome,
                exit_code=exit_code,
                signal=signal,
                reason=reason,
            )
        )
        attempt_start = attempt_end + chance.choice((0.02, 1.0, 20.0)) * chance.random()
    history, end = (
        History(
            [*ended_attempts, PastAttempt(since=attempt_start, until=None)],
            noticed_s=chance.choice((0.0, 0.05)),
        ),
        attempt_start + 1,
    )
    request_times = [
        *sorted(chance.uniform(BEGAN, end) for _ in range(chance.choice((1, 5, 500)))),
        end,
    ]
    board = board_of(history, request_times)
    want = [
        (attempt.since, attempt.until, attempt.outcome if attempt.until else None, attempt.reason)
        for attempt in history.attempts
    ]
    collected = [
        (attempt.started, attempt.ended, attempt.outcome, attempt.reason)
        for attempt in board.progress.attempts_of(TASK)
    ]
    assert collected == want
    events = events_of(history, request_times)
    assert page_of(history, events, end) == page_of(history, (), end)
    ended = [event.attempt for event in events if event.data["state"] == "ended"]
    # The end of each attempt is reported only once.
    assert len(ended) == len(set(ended))
