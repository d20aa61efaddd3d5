"""Finds guarded code: code that may use missing names, because the program handles that itself.

Guarded code is the body of a `try` that catches errors such as ImportError or AttributeError, the
branches of a feature test (a test of a version, or of whether a module or name exists), and code
that never runs. Names in guarded code do not affect how the program is run, and do not prevent a
launch.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from tfdeploy.planning.source.expressions import elements, last_name, target_names
from tfdeploy.planning.source.parsed_file import ParsedFile, enclosing_nodes, file_of, subtree
from tfdeploy.planning.source.source import Program, imported_files

_COMPARISONS = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FEATURE_TESTS = re.compile("__version__|version_info|hasattr|VERSION|PY[23]|find_(spec|module)")
# Constants of the modules six and typing, with the values that they have in every run on Python 3.
_CONSTANTS = {"PY2": False, "PY3": True, "TYPE_CHECKING": False}
_OF_ABSENCE = ("ImportError", "ModuleNotFoundError", "AttributeError", "NameError")


@lru_cache(maxsize=4)
def guarded_nodes(program: Program) -> frozenset[int]:
    """Return the ids of all nodes in guarded code, which may use names that do not exist.

    Examples are the body of a `try` that catches ImportError, and code that runs only with some
    versions of TensorFlow. If only guarded code imports a module, all nodes of this module are
    included.
    """
    results = frozenset(name for module in program.modules for name in _feature_flag_names(module))
    ids = {
        each.path: _guarded_in_module(each, results, imported=each.path not in program.entry_files)
        for each in program.modules
    }
    imports: defaultdict[str, set[str]] = defaultdict(set)
    for node in program.imports:
        path = file_of(node).path
        if id(node) not in ids[path]:
            imports[path].update(imported_files(program, path, node))
    imported = dict.fromkeys(program.entry_files)
    waiting = list(imported)
    for path in waiting:
        new = imports[path] - imported.keys()
        imported |= dict.fromkeys(new)
        waiting += new
    others = (map(id, module.nodes) for module in program.modules if module.path not in imported)
    return frozenset().union(*ids.values(), *others)


def catches_absence(node: ast.Try) -> bool:
    """Return whether this `try` handles a missing module or name, for example `except ImportError`.

    A handler that catches every error and then continues counts too.
    """
    return any(_catches_absence(handler) for handler in node.handlers)


def is_suppress(node: ast.With | ast.AsyncWith) -> bool:
    """Return whether the statement is a `with contextlib.suppress(...)`."""
    calls = (item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call))
    return any(last_name(call.func) == "suppress" for call in calls)


def fixed_value(test: ast.expr, is_main: bool | None = None) -> bool | None:
    """Return the value that the condition has in every run on Python 3.

    Returns None if the value may differ between runs. `is_main`: True if the command starts this
    module, False if another module imports it, None if both are possible.
    """
    match test:
        case ast.Constant(value):
            return bool(value)
        case ast.UnaryOp(ast.Not(), operand):
            inner = fixed_value(operand, is_main)
            return None if inner is None else not inner
        case ast.BoolOp(operator_, operands):
            decisive = isinstance(operator_, ast.Or)
            values = [fixed_value(each, is_main) for each in operands]
            return decisive if decisive in values else None if None in values else not decisive
        case ast.Compare(ast.Name("__name__"), [comparison]):
            return is_main if is_main is None or isinstance(comparison, ast.Eq) else not is_main
        case ast.Compare(left, [comparison], [right]):
            return _python_version_test(left, comparison, right)
    return _CONSTANTS.get(last_name(test))


def _guarded_in_module(
    module: ParsedFile, feature_names: frozenset[str], *, imported: bool
) -> set[int]:
    ids: set[int] = set()
    # Outer blocks come first. So `ids` already contains the blocks inside a guarded block, and the
    # loop skips them.
    for node in module.find(ast.Try, ast.With, ast.If, ast.IfExp):
        if id(node) not in ids:
            for part in _guarded_blocks(node, feature_names, imported=imported):
                ids.update(map(id, subtree(part)))
    return ids


def _guarded_blocks(
    node: ast.AST, feature_names: frozenset[str], *, imported: bool
) -> Iterator[ast.AST]:
    """Yield the guarded blocks of a `try`, `with` or `if`.

    In a guarded block, a missing name does no harm, because the program handles this case.
    """
    match node:
        case ast.Try() if catches_absence(node):
            yield from (*node.body, *node.handlers)
        case ast.With() if is_suppress(node):
            yield from node.body
        case ast.If(test, body, orelse) | ast.IfExp(test, body, orelse):
            holds = fixed_value(test, is_main=False if imported else None)
            blocks = [body, orelse] if holds is None else [orelse if holds else body]
            if (
                holds is not None
                or _is_feature_test(test)
                or not feature_names.isdisjoint(_names_in(test))
            ):
                for block in blocks:
                    yield from block if isinstance(block, list) else [block]


def _feature_flag_names(module: ParsedFile) -> Iterator[str]:
    """Yield the names in the module that tell whether a feature exists.

    Examples: `can_import = True` in a `try`, `new_api = version >= "1.0"`, `def is_tf2():`.
    """
    for node in module.find(ast.Try):
        if catches_absence(node):
            for body in (node.body, *(handler.body for handler in node.handlers)):
                for statement in body:
                    match statement:
                        case ast.Assign(targets, ast.Constant(None | bool())):
                            yield from target_names(targets)
    for assignment in module.find(ast.Assign):
        if _is_feature_test(assignment.value):
            yield from target_names(assignment.targets)
    for result in module.find(ast.Return):
        function = next(enclosing_nodes(result))
        if (
            isinstance(function, ast.FunctionDef)
            and result.value
            and _is_feature_test(result.value)
        ):
            yield function.name


def _is_feature_test(node: ast.expr) -> bool:
    return any(map(_FEATURE_TESTS.search, _names_in(node)))


def _names_in(node: ast.expr) -> set[str]:
    return {
        name
        for inner in subtree(node)
        if isinstance(inner, ast.expr) and (name := last_name(inner))
    }


def _catches_absence(handler: ast.ExceptHandler) -> bool:
    kinds = elements(handler.type) or [handler.type or ast.Name("Exception")]
    names = {last_name(kind) for kind in kinds}
    if not names.isdisjoint(_OF_ABSENCE):
        return True
    # An `except` for errors of a library, such as tf.errors.AbortedError, does not count: the
    # program does not use it to handle missing names.
    some = not names.isdisjoint(("Exception", "BaseException")) or any(
        not hasattr(builtins, last_name(kind)) and "errors" not in ast.unparse(kind)
        for kind in kinds
    )
    leaves = (ast.Return, ast.Break, ast.Continue)
    raises_again = isinstance(handler.body[-1], ast.Raise) and not any(
        isinstance(node, leaves) for node in ast.walk(handler)
    )
    return some and not raises_again


def _python_version_test(left: ast.expr, comparison: ast.cmpop, right: ast.expr) -> bool | None:
    """Return the result of a test such as `sys.version_info[0] < 3` or `version_info >= (3, 0)`.

    Returns None for other tests. Also returns None if the versions of Python 3 differ in the
    result.
    """
    match left:
        case ast.Subscript(value, ast.Constant(0)) | ast.Attribute(value, "major"):
            versions: tuple[Any, ...] = (3,)
        case value:
            versions = ((3, 8), (3, 99))
    compare = _COMPARISONS.get(type(comparison))
    if compare is None or last_name(value) != "version_info":
        return None
    try:
        other = ast.literal_eval(right)
        results = {compare(version, other) for version in versions}
    except (ValueError, TypeError):
        return None
    return results.pop() if len(results) == 1 else None
