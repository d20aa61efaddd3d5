"""Reads single expressions of a syntax tree: literal values, names, arguments of calls."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

EXITS = ("exit", "_exit", "quit", "abort")


def literal_text(node: ast.expr | None) -> str | None:
    """Return the value of a string literal; None for any other expression."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def ends_program(node: ast.stmt, exits: Collection[str] = EXITS) -> bool:
    """Return whether the statement is a `raise` or calls a function whose name is in `exits`."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(node, ast.Raise) or (
        isinstance(call, ast.Call) and last_name(call.func) in exits
    )


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """Return the argument of a call, by its keyword or its position.

    Returns None if the call does not contain this argument.
    """
    by_position = call.args[position : position + 1] if position is not None else []
    return next(
        (each.value for each in call.keywords if each.arg == name), next(iter(by_position), None)
    )


def last_name(node: ast.expr | None) -> str:
    """Return the last part of a name: "run" for `tf.app.run` and for `run`.

    Returns "" if the expression does not end in a name.
    """
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def bound_name(alias: ast.alias) -> str:
    """Return the name that one alias of an import statement defines: "a" for `import a.b`."""
    return alias.asname or alias.name.split(".")[0]


def elements(node: ast.expr | None) -> list[ast.expr]:
    """Return the elements of a literal list, tuple or set; [] for anything else."""
    return node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else []


def target_names(targets: Iterable[ast.expr]) -> Iterator[str]:
    """Yield the plain names among the targets of an assignment."""
    yield from (target.id for target in targets if isinstance(target, ast.Name))


def decorator_name(node: ast.expr) -> str:
    """Return "option" for the decorators `@click.option` and `@click.option(...)`."""
    return last_name(node.func if isinstance(node, ast.Call) else node)


def dotted_name(node: ast.expr) -> str:
    """Return "tf.app.run" for `tf.app.run`; "" if any part of the expression is not a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else ""
