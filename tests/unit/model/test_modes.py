"""Test that everything that depends on the mode of a run comes from the mode's row in the table
RULES.

No other code compares the name of a mode. Tasks of runs from older versions of tfdeploy know only
the name of their mode, which must give them the same properties ("traits") that the row has.
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


def test_every_mode_has_row() -> None:
    assert get_args(Mode) == MODES
    assert tuple(RULES) == MODES


def find_mode_comparisons(tree: ast.AST) -> list[int]:
    """Return the lines of the source in which a variable called `mode` is compared with the name of
    a mode.
    """
    comparisons = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(
            _is_mode(operand) for operand in (node.left, *node.comparators)
        ):
            texts = [
                constant.value for constant in ast.walk(node) if isinstance(constant, ast.Constant)
            ]
            comparisons += [node.lineno] if set(texts) & set(MODES) else []
    return comparisons


def _is_mode(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return _is_mode(node.func)
    return getattr(node, "attr", getattr(node, "id", "")) == "mode"


def test_no_code_compares_name_of_mode() -> None:
    files = [path for path in SOURCE.rglob("*.py") if "supplied" not in path.parts]
    by_name = {
        str(path.relative_to(SOURCE)): find_mode_comparisons(ast.parse(path.read_text()))
        for path in files
    }
    assert {path: lines for path, lines in by_name.items() if lines} == {}


@pytest.mark.parametrize(
    "line", ['job.mode == "async"', 'task.mode() not in ("sync", "")', 'mode != "local"']
)
def test_comparison_with_name_of_mode_is_found(line: str) -> None:
    assert find_mode_comparisons(ast.parse(line)) == [1]


def test_traits_match_those_of_runtime() -> None:
    known = {trait for traits in task._TRAITS_OF.values() for trait in traits}
    assert known == set(get_args(Trait))


@pytest.mark.parametrize("mode", NAMED_BY_OLDER_RUNS)
def test_task_of_older_version_has_traits_of_mode(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFDEPLOY_TASK_MODE", mode)
    monkeypatch.delenv("TFDEPLOY_TASK_TRAITS", raising=False)
    assert {trait for trait in get_args(Trait) if task.has_trait(trait)} == set(RULES[mode].traits)


def test_traits_in_environment_take_precedence_over_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDEPLOY_TASK_MODE", "sync")
    monkeypatch.setenv("TFDEPLOY_TASK_TRAITS", "own_session,one_client")
    assert [trait for trait in get_args(Trait) if task.has_trait(trait)] == [
        "own_session",
        "one_client",
    ]
    monkeypatch.setenv("TFDEPLOY_TASK_TRAITS", "")
    assert not any(task.has_trait(trait) for trait in get_args(Trait))
