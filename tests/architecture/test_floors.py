"""Check the rules of the architecture: allowed imports, banned names, who may print, the length of
a file.

The rules are in `tests/support/floors.py`. This module applies them to the tree; `test_planted.py`
applies them to planted violations.
"""

from __future__ import annotations

from collections import Counter

import pytest

from support.floors import (
    DIVIDED,
    HEIGHT,
    MAY_SLEEP,
    MOST_MODULES,
    PRIVATE,
    ROOMS,
    ROOT,
    RULES,
    imports,
    sources,
)


def test_tree_has_files_of_every_kind():
    paths = sources()
    assert {
        "tfdeploy/errors.py",
        "tfdeploy/config/inventory.py",
        "tests/architecture/test_floors.py",
    } <= set(paths)


@pytest.fixture(scope="module")
def faults():
    """Return {rule: the places in the repository that break the rule}.

    Each file is read only once, because parsing a file takes longer than applying all rules to it.
    """
    faults_by_rule = {rule: [] for rule in RULES}
    for path in sources():
        text = (ROOT / path).read_text(encoding="utf-8")
        for rule, (check, folders) in RULES.items():
            if path.startswith(folders) and not (rule == "sleep" and path.startswith(MAY_SLEEP)):
                faults_by_rule[rule] += check(text, path)
    return faults_by_rule


@pytest.mark.parametrize("rule", RULES)
def test_tree_breaks_no_rule(faults, rule):
    assert not faults[rule], "\n".join(faults[rule])


def test_no_folder_has_too_many_modules():
    counts = Counter(
        path.rpartition("/")[0]
        for path in sources()
        if not path.endswith(("/__init__.py", "/conftest.py"))
    )
    crowded = {folder: count for folder, count in counts.items() if count > MOST_MODULES}
    assert not crowded


def test_every_private_module_is_tested():
    tried = {
        name.partition(".")[0]: path
        for path in sources()
        if path in PRIVATE.values()
        for _, name in _imports(path)
    }
    assert {name: tried.get(name) for name in PRIVATE} == PRIVATE


def test_every_folder_has_floor():
    folders = {
        path.name for path in (ROOT / "tfdeploy").iterdir() if (path / "__init__.py").exists()
    }
    assert folders <= HEIGHT.keys()


@pytest.mark.parametrize("folder", DIVIDED)
def test_table_has_every_folder_and_module(folder):
    by_name = {path.stem for path in (ROOT / "tfdeploy" / folder).glob("*.py")}
    by_name |= {path.parent.name for path in (ROOT / "tfdeploy" / folder).glob("*/__init__.py")}
    assert ROOMS[folder].keys() == by_name - {"__init__"}


def test_no_module_imports_itself_indirectly():
    path_by_module = {
        path.removesuffix(".py").replace("/", "."): path
        for path in sources()
        if path.startswith("tfdeploy/")
    }
    imported_by = {}
    for module, path in path_by_module.items():
        imported = [name for _, name in _imports(path)]
        imported_by[module] = {
            name if name in path_by_module else name.rpartition(".")[0] for name in imported
        } & path_by_module.keys() - {module}
    for start in path_by_module:
        seen, todo = set(), [start]
        while todo:
            for module_imported in imported_by[todo.pop()] - seen:
                seen.add(module_imported)
                todo.append(module_imported)
        assert start not in seen, f"{start} imports itself, directly or through other modules"


def _imports(path):
    return imports((ROOT / path).read_text(encoding="utf-8"), path)
