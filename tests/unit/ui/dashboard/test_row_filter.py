"""One filter language for rows, log and events."""

from __future__ import annotations

import pytest

from support.recorded import fold_events
from support.screens import cut_host
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trouble import marks
from tfdeploy.ui.dashboard.row_filter import parse, states_of

PROGRESS = RunProgress()
fold_events(PROGRESS, cut_host())
MARKS = marks(PROGRESS)


def rows(text: str) -> list[str]:
    found = parse(text, PROGRESS)
    return [
        name
        for name in PROGRESS.tasks
        if found.passes(name, states_of(MARKS[name], PROGRESS, name))
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
def test_terms_about_tasks(text: str, names: list[str]) -> None:
    assert rows(text) == names


def test_words_are_about_text_alone() -> None:
    found = parse('loss "global step" !nan', PROGRESS)
    assert not found.of_tasks and len(rows('loss "global step" !nan')) == 8
    assert found.finds is not None
    assert found.finds("global step: 3 LOSS: 2")
    assert not found.finds("global step: 3 loss: nan")
    assert not found.finds("step global loss")


def test_a_state_in_quotes_is_text() -> None:
    found = parse('"unreachable"', PROGRESS)
    assert not found.of_tasks and found.finds is not None and found.finds("host is unreachable")


@pytest.mark.parametrize("text", ["", "   ", "!", '"', "@", "worker:[", "((", "[", "!!x", '!"a b'])
def test_anything_can_be_typed(text: str) -> None:
    found = parse(text, PROGRESS)
    rows(text)
    if found.finds is not None:
        found.finds("text")


def test_a_state_that_no_task_is_in_is_a_word_of_the_log() -> None:
    held = {state for name, mark in MARKS.items() for state in states_of(mark, PROGRESS, name)}
    failed, cut = parse("failed", PROGRESS, held), parse("unreachable", PROGRESS, held)
    assert (
        not failed.of_tasks
        and failed.finds is not None
        and failed.finds("worker:3 failed with exit code 1")
    )
    assert cut.of_tasks and cut.finds is None
    assert parse("!failed", PROGRESS, held).of_tasks  # what has not failed is all of them
