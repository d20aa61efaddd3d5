"""Test that everything that depends on the mode of a run is in one row of the table RULES.

No other code compares the name of a mode. A task of an older run, which has only the name, gets the
traits in the row.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

import tfdeploy
from tfdeploy.model.job import MODES, Mode
from tfdeploy.model.modes import RULES, Trait
from tfdeploy.runtime import task

SOURCE = Path(tfdeploy.__file__).parent
NAMED_BY_OLDER_RUNS = ("async", "sync", "mirrored", "coordinator", "ingraph", "local")


def test_every_mode_has_a_row() -> None:
    assert get_args(Mode) == MODES
    assert tuple(RULES) == MODES


def compared(tree: ast.AST) -> list[int]:
    """Return the lines of the source in which a variable called `mode` is compared with the name of
    a mode.
    """
    comparisons = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(
            _is_mode(each) for each in (node.left, *node.comparators)
        ):
            texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            comparisons += [node.lineno] if set(texts) & set(MODES) else []
    return comparisons


def _is_mode(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return _is_mode(node.func)
    return getattr(node, "attr", getattr(node, "id", "")) == "mode"


def test_nobody_asks_for_the_name_of_a_mode() -> None:
    files = [path for path in SOURCE.rglob("*.py") if "supplied" not in path.parts]
    by_name = {
        str(path.relative_to(SOURCE)): compared(ast.parse(path.read_text())) for path in files
    }
    assert {path: lines for path, lines in by_name.items() if lines} == {}


@pytest.mark.parametrize(
    "line", ['job.mode == "async"', 'task.mode() not in ("sync", "")', 'mode != "local"']
)
def test_it_would_be_seen(line: str) -> None:
    assert compared(ast.parse(line)) == [1]


def test_the_traits_are_those_that_the_runtime_knows() -> None:
    known = {trait for traits in task._TRAITS_OF.values() for trait in traits}
    assert known == set(get_args(Trait))


@pytest.mark.parametrize("mode", NAMED_BY_OLDER_RUNS)
def test_a_task_of_an_older_version_has_the_traits_of_its_mode(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFDEPLOY_TASK_MODE", mode)
    monkeypatch.delenv("TFDEPLOY_TASK_TRAITS", raising=False)
    assert {trait for trait in get_args(Trait) if task.has_trait(trait)} == set(RULES[mode].traits)


def test_what_a_task_is_told_counts_before_its_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDEPLOY_TASK_MODE", "sync")
    monkeypatch.setenv("TFDEPLOY_TASK_TRAITS", "own_session,one_client")
    assert [trait for trait in get_args(Trait) if task.has_trait(trait)] == [
        "own_session",
        "one_client",
    ]
    monkeypatch.setenv("TFDEPLOY_TASK_TRAITS", "")
    assert not any(task.has_trait(trait) for trait in get_args(Trait))
