"""Which names of TensorFlow a program uses, and where, read from its syntax trees alone.

Names are given as under `import tensorflow as tf` without the `tf.`: "train.Supervisor", "contrib.slim". Uses that are
guarded (see `guards`) are marked: the program itself handles their absence.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from tfdeploy.planning.program import guards
from tfdeploy.planning.program.flag_types import dotted_name
from tfdeploy.planning.program.source import Program
from tfdeploy.runtime import replaced


@dataclass(frozen=True)
class Use:
    """One name at one place, "train.py:12". `binds`: an import, or an alias such as `slim = tf.contrib.slim`, of something that
    a stand-in replaces, so that only uses of the bound name fail."""

    name: str
    where: str
    guarded: bool = False
    binds: bool = False
    node: ast.AST | None = field(default=None, compare=False, repr=False)
    plain: bool = True  # False where the module binds the name to something else too


@lru_cache(maxsize=4)
def of_tensorflow(program: Program) -> tuple[Use, ...]:
    """Every name of TensorFlow that is used, in the order of files and lines; names under compat.v1 or v2 as they are written."""
    found: list[Use] = []
    for path, tree in program.modules.items():
        uses = _in_module(path, tree, guards.guarded(program))
        found += sorted(uses, key=lambda use: int(use.where.rpartition(":")[2]))
    return tuple(found)


def of_names(program: Program, names: frozenset[str]) -> tuple[Use, ...]:
    """Every plain name of `names` that a module reads and does not bind: builtins that Python 3 dropped."""
    guarded = guards.guarded(program)
    return tuple(
        Use(node.id, f"{path}:{node.lineno}", node=node)
        for path, tree in program.modules.items()
        for free in (names - _bound(tree),)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in free and id(node) not in guarded
    )


def _in_module(path: str, tree: ast.Module, guarded: frozenset[int]) -> Iterator[Use]:
    """The module's uses; none where it takes compat.v1 for TensorFlow by itself."""
    names: dict[str, str] = {}  # name in the module -> name in TensorFlow
    settled: dict[str, bool] = {}  # name in the module -> whether only guarded code binds it
    aliased: set[int] = set()
    for node in ast.walk(tree):
        for own, name, used in _bindings(node, names):
            if names.get(own, name) != name and "compat.v1" in (name, names[own]):
                name = "compat.v1"
            names[own] = name
            settled[own] = settled.get(own, True) and id(node) in guarded and name not in ("", "compat.v1")
            aliased |= {id(inner) for inner in ast.walk(node)} if isinstance(node, ast.Assign) else set()
            if used:
                yield Use(used, f"{path}:{_line(node)}", id(node) in guarded, replaced.stands_in(used), node)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    others = _bound(tree, imports=False, without=aliased)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Name) or id(node) in inner or id(node) in aliased:
            continue
        root, chain = _chain(node)
        if root in names and (chain or (names[root] and isinstance(node.ctx, ast.Load))):
            name = f"{names[root]}.{chain}".strip(".")
            plain = root not in others or not names[root]
            yield Use(name, f"{path}:{node.lineno}", id(node) in guarded or settled[root], node=node, plain=plain)


def _bindings(node: ast.AST, names: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """(name in the module, name in TensorFlow, what the statement itself uses) of an import, of `tf = tf.compat.v1`, or of an
    alias of a section that a stand-in replaces: `slim = tf.contrib.slim`. `names`: those bound so far."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top, _, rest = alias.name.partition(".")
            if top == "tensorflow":
                yield (alias.asname, rest, rest) if alias.asname else (top, "", rest)
    elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "tensorflow":
        part = (node.module or "").partition(".")[2]
        for alias in node.names:
            name = f"{part}.{alias.name}".strip(".") if alias.name != "*" else part
            yield alias.asname or alias.name, name, name
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
        root, chain = _chain(node.value)
        name = f"{names.get(root, '')}.{chain}".strip(".")
        section = root in names and name.count(".") == 1 and replaced.stands_in(name)
        for target in node.targets if section or chain == "compat.v1" else ():
            if isinstance(target, ast.Name):
                yield target.id, name if section else "compat.v1", name if section else ""


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 1)


def _chain(node: ast.expr) -> tuple[str, str]:
    """("tf", "train.Supervisor") of tf.train.Supervisor, ("tf", "") of tf; ("", "") where the chain starts with no name."""
    root, _, chain = dotted_name(node).partition(".")
    return root, chain


def _bound(tree: ast.Module, *, imports: bool = True, without: Collection[int] = ()) -> set[str]:
    """The names that a module gives a value anywhere. `without`: the ids of nodes that do not count."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in without:
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif imports and isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    return bound
