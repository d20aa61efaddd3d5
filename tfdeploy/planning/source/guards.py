"""Finds guarded code: code that may use missing names because the program itself handles that.

Guarded are the body of a `try` that catches such errors, the branches of a feature test (a test of
a version, or whether a module or name exists), and code that never runs. Names in guarded code
neither decide how the program runs nor prevent a launch.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from tfdeploy.planning.source.expressions import dotted_name, last_name
from tfdeploy.planning.source.parsed_file import ParsedFile
from tfdeploy.planning.source.source import Program, imported_files

_COMPARISONS = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FEATURE_TESTS = (
    "__version__",
    "version_info",
    "hasattr",
    "VERSION",
    "PY2",
    "PY3",
    "find_spec",
    "find_module",
)
_CONSTANTS = {"six.PY2": False, "six.PY3": True, "typing.TYPE_CHECKING": False}
_OF_ABSENCE = ("ImportError", "ModuleNotFoundError", "AttributeError", "NameError")


@lru_cache(maxsize=4)
def guarded(program: Program) -> frozenset[int]:
    """Return the ids of all nodes in code where the program itself handles missing names.

    If only such code imports a module, all nodes of the module are included.
    """
    results = frozenset(name for module in program.modules for name in _result_names(module))
    ids = {
        each.path: _in_module(each, results, imported=each.path not in program.roots)
        for each in program.modules
    }
    imports: dict[str, set[str]] = {path: set() for path in ids}
    for path, node in program.imports:
        if id(node) not in ids[path]:
            imports[path].update(imported_files(program, path, node))
    waiting, imported = list(program.roots), set(program.roots)
    while waiting:
        files = imports.get(waiting.pop(), set()) - imported
        waiting += files
        imported |= files
    others = (map(id, module.nodes) for module in program.modules if module.path not in imported)
    return frozenset().union(*ids.values(), *others)


def catches_absence(node: ast.Try) -> bool:
    """Return whether this `try` handles a missing module or name, such as by `except ImportError`.

    A handler that catches every error, and then continues, counts too.
    """
    return any(_catches(handler) for handler in node.handlers)


def suppresses(node: ast.With | ast.AsyncWith) -> bool:
    """Return whether the statement is a `with contextlib.suppress(...)`."""
    calls = (item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call))
    return any(last_name(call.func) == "suppress" for call in calls)


def decided(test: ast.expr, main: bool | None = None) -> bool | None:
    """Return the value that the condition has in every run on Python 3; None if it is not fixed.

    `main`: True if the command starts this module, False if another module imports it, None if
    both are possible.
    """
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = decided(test.operand, main)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        decisive = isinstance(test.op, ast.Or)
        values = [decided(value, main) for value in test.values]
        return decisive if decisive in values else None if None in values else not decisive
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        if isinstance(test.left, ast.Name) and test.left.id == "__name__":
            return main if main is None or isinstance(test.ops[0], ast.Eq) else not main
        return _of_python(test)
    return next(
        (value for name, value in _CONSTANTS.items() if name.rpartition(".")[2] == last_name(test)),
        None,
    )


def _in_module(module: ParsedFile, results: frozenset[str], *, imported: bool) -> set[int]:
    ids: set[int] = set()
    # Outer blocks come first here, so a block inside a guarded one is skipped.
    for node in module.find(ast.Try, ast.With, ast.If, ast.IfExp):
        if id(node) not in ids:
            for part in _protected(node, module, results, imported=imported):
                ids.update(map(id, module.within(part)))
    return ids


def _protected(
    node: ast.AST, module: ParsedFile, results: frozenset[str], *, imported: bool
) -> Iterator[ast.AST]:
    """Yield those blocks of a `try`, `with` or `if` in which the program handles missing names."""
    if isinstance(node, ast.Try) and catches_absence(node):
        yield from (*node.body, *node.handlers)
    elif isinstance(node, ast.With) and suppresses(node):
        yield from node.body
    elif isinstance(node, ast.If | ast.IfExp):
        body, orelse = (
            (node.body, node.orelse) if isinstance(node, ast.If) else ([node.body], [node.orelse])
        )
        holds = decided(node.test, main=False if imported else None)
        if holds is None and (
            _is_feature_test(node.test, module)
            or not results.isdisjoint(_names_in(node.test, module))
        ):
            yield from (*body, *orelse)
        elif holds is not None:
            yield from orelse if holds else body


def _result_names(module: ParsedFile) -> Iterator[str]:
    """Yield the names in the module that tell whether a feature exists.

    Examples: `can_import = True` in a `try`, `new_api = version >= "1.0"`, `def is_tf2():`.
    """
    tries = (node for node in module.find(ast.Try) if catches_absence(node))
    blocks = (
        block
        for node in tries
        for block in (node.body, *(handler.body for handler in node.handlers))
    )
    statements = (statement for block in blocks for statement in block)
    assigned = [
        node for node in statements if isinstance(node, ast.Assign) and _is_result(node.value)
    ]
    assigned += [node for node in module.find(ast.Assign) if _is_feature_test(node.value, module)]
    yield from (
        target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)
    )
    for node in module.find(ast.Return):
        function = next(module.around(node))
        if (
            isinstance(function, ast.FunctionDef)
            and node.value
            and _is_feature_test(node.value, module)
        ):
            yield function.name


def _is_result(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and (
        value.value is None or isinstance(value.value, bool)
    )


def _is_feature_test(node: ast.expr, module: ParsedFile) -> bool:
    return any(tested in name for name in _names_in(node, module) for tested in _FEATURE_TESTS)


def _names_in(node: ast.expr, module: ParsedFile) -> set[str]:
    return {
        name
        for inner in module.within(node)
        if isinstance(inner, ast.expr) and (name := last_name(inner))
    }


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = [last_name(kind) if kind else "Exception" for kind in kinds]
    if any(name in _OF_ABSENCE for name in names):
        return True
    unknown = [
        kind
        for kind, name in zip(kinds, names, strict=True)
        if kind and not hasattr(builtins, name)
    ]
    some = any(name in ("Exception", "BaseException") for name in names)
    return (
        some or any("errors" not in ast.unparse(kind) for kind in unknown)
    ) and not _raises_again(handler)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    goes_on = (ast.Return, ast.Break, ast.Continue)
    return isinstance(handler.body[-1], ast.Raise) and not any(
        isinstance(node, goes_on) for node in ast.walk(handler)
    )


def _of_python(test: ast.Compare) -> bool | None:
    """Return the result of a test such as `sys.version_info[0] < 3` or `version_info >= (3, 0)`.

    None if it differs between versions of Python 3, or is another kind of test.
    """
    subscript = test.left if isinstance(test.left, ast.Subscript) else None
    name = dotted_name(subscript.value if subscript else test.left)
    is_first = (
        subscript and isinstance(subscript.slice, ast.Constant) and subscript.slice.value == 0
    )
    compare = _COMPARISONS.get(type(test.ops[0]))
    if name.endswith("version_info.major") or (name.endswith("version_info") and is_first):
        versions: tuple[Any, ...] = (3,)
    elif name.endswith("version_info") and not subscript:
        versions = ((3, 8), (3, 99))
    else:
        return None
    try:
        other = ast.literal_eval(test.comparators[0])
        results = {compare(version, other) for version in versions} if compare else set()
    except (ValueError, TypeError):
        return None
    return results.pop() if len(results) == 1 else None
