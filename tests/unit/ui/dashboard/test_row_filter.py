"""Test the filter expressions that select rows, log lines and events of the dashboard."""

from __future__ import annotations

import pytest

from support.recorded import fold_events
from support.screens import cut_host
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trouble import classify_tasks
from tfdeploy.ui.dashboard.row_filter import filterable_states, parse_filter

PROGRESS = RunProgress()
fold_events(PROGRESS, cut_host())
MARKS = classify_tasks(PROGRESS, {}, PROGRESS.latest or 0)


def rows(text: str) -> list[str]:
    row_filter = parse_filter(text, PROGRESS)
    return [
        name
        for name in PROGRESS.tasks
        if row_filter.passes(name, filterable_states(MARKS[name], PROGRESS, name))
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ps", ["ps:0"]),
        ("worker:[0-1]", ["worker:0", "worker:1"]),
        ("@n[3-5]", ["worker:1", "worker:2", "worker:3"]),
        ("@n[3-5] !unreachable", ["worker:1", "worker:2"]),
        ("unreachable", ["worker:3"]),
        ("trouble", ["worker:3"]),
        ("!worker", ["ps:0"]),
        ("worker !@n2 !@n3 !trouble", ["worker:2", "worker:4", "worker:5", "worker:6"]),
        ("n5", ["worker:3"]),
        ("n5 @n4", []),
        ("@nowhere", []),
        ("stalled", []),
    ],
)
def test_terms_that_select_tasks(text: str, names: list[str]) -> None:
    assert rows(text) == names


def test_words_select_only_text() -> None:
    row_filter = parse_filter('loss "global step" !nan', PROGRESS)
    assert not row_filter.selects_tasks and len(rows('loss "global step" !nan')) == 8
    assert row_filter.text_test is not None
    assert row_filter.text_test("global step: 3 LOSS: 2")
    assert not row_filter.text_test("global step: 3 loss: nan")
    assert not row_filter.text_test("step global loss")


def test_quoted_state_is_text() -> None:
    row_filter = parse_filter('"unreachable"', PROGRESS)
    assert (
        not row_filter.selects_tasks
        and row_filter.text_test is not None
        and row_filter.text_test("host is unreachable")
    )


@pytest.mark.parametrize("text", ["", "   ", "!", '"', "@", "worker:[", "((", "[", "!!x", '!"a b'])
def test_anything_can_be_typed(text: str) -> None:
    row_filter = parse_filter(text, PROGRESS)
    rows(text)
    if row_filter.text_test is not None:
        row_filter.text_test("text")


def test_state_without_tasks_selects_text() -> None:
    present_states = {
        state for name, mark in MARKS.items() for state in filterable_states(mark, PROGRESS, name)
    }
    failed, unreachable = (
        parse_filter("failed", PROGRESS, present_states),
        parse_filter("unreachable", PROGRESS, present_states),
    )
    assert (
        not failed.selects_tasks
        and failed.text_test is not None
        and failed.text_test("worker:3 failed with exit code 1")
    )
    assert unreachable.selects_tasks and unreachable.text_test is None
    # No task has failed, so all tasks match the filter `!failed`.
    assert parse_filter("!failed", PROGRESS, present_states).selects_tasks
