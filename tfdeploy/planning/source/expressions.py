"""What one expression of a syntax tree says by itself: the value of a literal, the name that it ends with."""

from __future__ import annotations

import ast


def text(node: ast.expr | None) -> str | None:
    """The value of a literal text; None for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def last_name(node: ast.expr | None) -> str:
    """ "run" of `tf.app.run` and of `run`; "" for an expression that ends in no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def dotted_name(node: ast.expr) -> str:
    """ "tf.app.run" of these names and attributes; "" for an expression of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else ""
