"""Test which tasks, hosts and patterns the flags of `logs` and `tensorboard` select."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfdeploy.cli.arguments.logs import Flags
from tfdeploy.cli.flags import add_verb
from tfdeploy.cli.options import Parser
from tfdeploy.cli.verbs import logs, tensorboard
from tfdeploy.errors import UsageError

PLAN: Any = SimpleNamespace(
    run="digits-1",
    tasks=[
        SimpleNamespace(task=task, role=task.partition(":")[0], host=host)
        for task, host in (
            ("ps:0", "n1"),
            ("worker:0", "n2"),
            ("worker:1", "n3"),
            ("worker:10", "n3"),
            ("chief:0", "worker"),
        )
    ],
    host_names=("n1", "n2", "n3", "worker"),
)
WORKERS = ("worker:0", "worker:1", "worker:10")
SELECTIONS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({}, tuple(task.task for task in PLAN.tasks)),
    ({"task": ["worker"]}, WORKERS),
    ({"task": ["worker:[0-2]", "ps"]}, ("ps:0", "worker:0", "worker:1")),
    ({"task": ["worker:1*"]}, ("worker:1", "worker:10")),
    ({"task": ["worker:[10]"]}, ("worker:10",)),
    ({"host": ["n[2-3]"]}, WORKERS),
    ({"host": ["worker"]}, ("chief:0",)),
    ({"host": ["n?"], "task": ["*:0"]}, ("ps:0", "worker:0")),
]
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"task": ["worker:[5-7]"]}, "'worker:[5-7]' matches no task of digits-1", "the tasks are"),
    ({"task": ["wrker:1"]}, "matches no task", "did you mean worker:1?"),
    ({"task": ["worker:[3-1]"]}, "runs backwards", "[1-3]"),
    ({"task": ["worker:[]"]}, "is not a range", "[01-16]"),
    ({"task": [""]}, "an empty pattern", "worker:[0-2,5]"),
    ({"host": ["n1", "n[8-9]"]}, "matches no host of digits-1", "the hosts are n[1-3],worker"),
    ({"task": ["ps"], "host": ["n3"]}, "no task of digits-1 matches", "ps:0@n1"),
]


@pytest.mark.parametrize(("flags", "tasks"), SELECTIONS)
def test_selected_tasks(flags: dict[str, Any], tasks: tuple[str, ...]) -> None:
    assert logs.select_tasks(Flags(**flags), PLAN, None) == tasks
    assert logs.select_tasks(Flags(task=["worker:0,worker:1"]), PLAN, frozenset({"n3"})) == (
        "worker:1",
    )


@pytest.mark.parametrize(("flags", "message", "next"), REFUSED)
def test_unknown_names_are_refused(flags: dict[str, Any], message: str, next: str) -> None:
    with pytest.raises(UsageError) as caught:
        logs.select_tasks(Flags(**flags), PLAN, None)
    assert (
        message in caught.value.what and caught.value.next is not None and next in caught.value.next
    )


def test_tensorboard_accepts_pattern_for_one_host() -> None:
    assert tensorboard._match_one_host(PLAN, "n[2]") == "n2"
    with pytest.raises(UsageError, match=r"on one host, not on n\[1-3\]"):
        tensorboard._match_one_host(PLAN, "n*")


def read(*args: str) -> Any:
    parser = Parser(prog="tfdeploy")
    add_verb(parser.add_subparsers(parser_class=Parser), "logs", Flags)
    return parser.parse_args(["logs", *args])


def test_flags_have_names_used_by_other_tools() -> None:
    short = read("-n", "5", "-t", "-o", "raw", "-p", "-C3", "--no-color")
    long = read(
        "--tail=5",
        "--timestamps",
        "--output",
        "raw",
        "--previous",
        "--context",
        "3",
        "--color",
        "never",
    )
    assert {**vars(short), "read": 0} == {**vars(long), "read": 0} and short.lines == 5
    assert read("--tail", "all").lines is read("--tail", "-1").lines is None
    for args in (
        ("-n", "-3"),
        ("-n", "x"),
        ("-C", "1001"),
        ("-C", "-1"),
        ("--attempt", "0"),
        ("--until", "soon"),
        ("-o", "xml"),
    ):
        with pytest.raises(UsageError):
            read(*args)
