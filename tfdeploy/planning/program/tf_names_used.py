"""Which names of TensorFlow a program uses, and where, read from its syntax trees alone.

Names are given as under `import tensorflow as tf` without the `tf.`: "train.Supervisor", "contrib.slim". Uses within a
`try`, or an `if` about versions, are marked as guarded: the program itself handles their absence.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tfdeploy.planning.program.source import Program

_ASKS = ("__version__", "version_info", "hasattr", "VERSION", "PY2", "PY3", "find_spec")


@dataclass(frozen=True)
class Use:
    """One name at one place, "train.py:12"."""

    name: str
    where: str
    guarded: bool = False


def of_tensorflow(program: Program) -> tuple[Use, ...]:
    """Every name of TensorFlow that is used, in the order of files and lines; names under compat.v1 or v2 as they are written."""
    found: list[Use] = []
    for path, tree in zip(program.paths, program.trees, strict=True):
        found += sorted(_in_module(path, tree), key=lambda use: int(use.where.rpartition(":")[2]))
    return tuple(found)


def of_names(program: Program, names: frozenset[str]) -> tuple[Use, ...]:
    """Every plain name of `names` that a module reads and does not bind: builtins that Python 3 dropped."""
    found: list[Use] = []
    for path, tree in zip(program.paths, program.trees, strict=True):
        free = names - _bound(tree)
        for node, guarded in guarded_walk(tree):
            if isinstance(node, ast.Name) and node.id in free and not guarded:
                found.append(Use(node.id, f"{path}:{node.lineno}"))
    return tuple(found)


def guarded_walk(tree: ast.AST, guarded: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether a `try` or an `if` about versions stands around it."""
    yield tree, guarded
    protected: list[ast.AST] = []
    if isinstance(tree, ast.Try) and tree.handlers:
        protected = [*tree.body, *tree.handlers]
    elif isinstance(tree, ast.If) and any(asked in ast.dump(tree.test) for asked in _ASKS):
        protected = [*tree.body, *tree.orelse]
    for child in ast.iter_child_nodes(tree):
        yield from guarded_walk(child, guarded or child in protected)


def _in_module(path: str, tree: ast.Module) -> Iterator[Use]:
    """The module's uses; none where it takes compat.v1 for TensorFlow by itself."""
    nodes = list(guarded_walk(tree))
    names = dict[str, str]()  # name in the module -> name in TensorFlow
    for node, guarded in nodes:
        for own, name, used in _bindings(node):
            if names.get(own, name) != name and "compat.v1" in (name, names[own]):
                name = "compat.v1"
            names[own] = name
            if used:
                yield Use(used, f"{path}:{node.lineno}", guarded)  # type: ignore[attr-defined]
    inner = {id(node.value) for node, _ in nodes if isinstance(node, ast.Attribute)}
    for node, guarded in nodes:
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            root, chain = _chain(node)
            if root in names:
                yield Use(f"{names[root]}.{chain}".lstrip("."), f"{path}:{node.lineno}", guarded)


def _bindings(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """(name in the module, name in TensorFlow, what the import itself uses) of an import, or of `tf = tf.compat.v1`."""
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
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and _chain(node.value)[1] == "compat.v1":
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, "compat.v1", ""


def _chain(node: ast.Attribute) -> tuple[str, str]:
    """("tf", "train.Supervisor") of tf.train.Supervisor; ("", "") where the chain starts with no name."""
    parts: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    return (inner.id, ".".join(reversed(parts))) if isinstance(inner, ast.Name) else ("", "")


def _bound(tree: ast.Module) -> set[str]:
    """The names that a module gives a value anywhere; all of them after `from x import *`."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    return bound
