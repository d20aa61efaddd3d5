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


def test_the_tree_is_seen():
    paths = sources()
    assert {
        "tfdeploy/errors.py",
        "tfdeploy/config/inventory.py",
        "tests/architecture/test_floors.py",
    } <= set(paths)


@pytest.fixture(scope="module")
def faults():
    """Return {rule: the faults in the tree}. Each file is read only once, because parsing it takes
    longer than applying all rules to it.
    """
    faults_by_rule = {rule: [] for rule in RULES}
    for path in sources():
        text = (ROOT / path).read_text(encoding="utf-8")
        for rule, (check, folders) in RULES.items():
            if path.startswith(folders) and not (rule == "sleep" and path.startswith(MAY_SLEEP)):
                faults_by_rule[rule] += check(text, path)
    return faults_by_rule


@pytest.mark.parametrize("rule", RULES)
def test_the_tree_keeps(faults, rule):
    assert not faults[rule], "\n".join(faults[rule])


def test_no_folder_has_too_many_modules():
    counts = Counter(
        path.rpartition("/")[0]
        for path in sources()
        if not path.endswith(("/__init__.py", "/conftest.py"))
    )
    crowded = {folder: count for folder, count in counts.items() if count > MOST_MODULES}
    assert not crowded


def test_every_private_module_that_may_be_tried_is_tried():
    tried = {
        name.partition(".")[0]: path
        for path in sources()
        if path in PRIVATE.values()
        for _, name in _imports(path)
    }
    assert {name: tried.get(name) for name in PRIVATE} == PRIVATE


def test_every_folder_has_a_floor():
    folders = {
        path.name for path in (ROOT / "tfdeploy").iterdir() if (path / "__init__.py").exists()
    }
    assert folders <= HEIGHT.keys()


@pytest.mark.parametrize("folder", DIVIDED)
def test_every_room_and_module_has_its_place_in_the_table(folder):
    by_name = {path.stem for path in (ROOT / "tfdeploy" / folder).glob("*.py")}
    by_name |= {path.parent.name for path in (ROOT / "tfdeploy" / folder).glob("*/__init__.py")}
    assert ROOMS[folder].keys() == by_name - {"__init__"}


def test_no_module_needs_itself():
    asks = {
        path.removesuffix(".py").replace("/", "."): path
        for path in sources()
        if path.startswith("tfdeploy/")
    }
    edges = {}
    for module, path in asks.items():
        named = [name for _, name in _imports(path)]
        edges[module] = {
            name if name in asks else name.rpartition(".")[0] for name in named
        } & asks.keys() - {module}
    for start in asks:
        seen, todo = set(), [start]
        while todo:
            for each in edges[todo.pop()] - seen:
                seen.add(each)
                todo.append(each)
        assert start not in seen, f"{start} is in a circle of imports"


def _imports(path):
    return imports((ROOT / path).read_text(encoding="utf-8"), path)
