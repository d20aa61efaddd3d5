"""Finds the code that stands under a condition of the program's own: what a `try` may catch, what lies in the branch
of a version or of a part that may be missing, and what never runs. Reads syntax trees.

Names in such code are the program's own affair: they neither decide how it runs nor prevent it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from functools import lru_cache

from tfdeploy.planning.source.expressions import last_name
from tfdeploy.planning.source.source import Program, imported_files

_ASKS = ("__version__", "version_info", "hasattr", "VERSION", "PY2", "PY3", "find_spec", "find_module")
_NEVER = ("six.PY2", "typing.TYPE_CHECKING")
_OF_ABSENCE = ("ImportError", "ModuleNotFoundError", "AttributeError", "NameError")


@lru_cache(maxsize=4)
def guarded(program: Program) -> frozenset[int]:
    """The ids of all guarded nodes, with every node of a module that only guarded code imports."""
    settled = frozenset(name for nodes in program.by_path.values() for name in _settled(nodes))
    found = {path: _in_module(nodes, settled, imported=path not in program.roots) for path, nodes in program.by_path.items()}
    imports: dict[str, set[str]] = {path: set() for path in found}
    for path, node in (*program.find(ast.Import), *program.find(ast.ImportFrom)):
        if id(node) not in found[path]:
            imports[path].update(imported_files(program, path, node))
    waiting, imported = list(program.roots), set(program.roots)
    while waiting:
        files = imports.get(waiting.pop(), set()) - imported
        waiting += files
        imported |= files
    others = (nodes for path, nodes in program.by_path.items() if path not in imported)
    return frozenset().union(*found.values(), (id(node) for nodes in others for node in nodes))


def catches_absence(node: ast.Try) -> bool:
    """Whether a handler is for an ImportError or AttributeError of the body, or for any error and then goes on."""
    return any(_catches(handler) for handler in node.handlers)


def suppresses(node: ast.With | ast.AsyncWith) -> bool:
    """Whether it is a `with contextlib.suppress(...)`."""
    calls = (item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call))
    return any(last_name(call.func) == "suppress" for call in calls)


def decided(test: ast.expr, main: bool | None = None) -> bool | None:
    """Whether the condition holds in every run on Python 3, or None. `main`: the module is the one that the command starts."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = decided(test.operand, main)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        ends_at = isinstance(test.op, ast.Or)
        values = [decided(value, main) for value in test.values]
        return ends_at if ends_at in values else None if None in values else not ends_at
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        if isinstance(test.left, ast.Name) and test.left.id == "__name__":
            return main if main is None or isinstance(test.ops[0], ast.Eq) else not main
        return _of_python(test)
    name = last_name(test)
    return False if name and any(each.endswith(f".{name}") for each in _NEVER) else True if name == "PY3" else None


def _in_module(nodes: tuple[ast.AST, ...], settled: frozenset[str], *, imported: bool) -> set[int]:
    ids: set[int] = set()
    for node in nodes:  # an outer block before those in it
        if id(node) not in ids:
            ids.update(id(inner) for part in _protected(node, settled, imported=imported) for inner in ast.walk(part))
    return ids


def _protected(node: ast.AST, settled: frozenset[str], *, imported: bool) -> Iterator[ast.AST]:
    """What of the node's own blocks is guarded."""
    if isinstance(node, ast.Try) and catches_absence(node):
        yield from (*node.body, *node.handlers)
    elif isinstance(node, ast.With) and suppresses(node):
        yield from node.body
    elif isinstance(node, ast.If | ast.IfExp):
        body, orelse = (node.body, node.orelse) if isinstance(node, ast.If) else ([node.body], [node.orelse])
        holds = decided(node.test, main=False if imported else None)
        if holds is None and (_asks(node.test) or _mentions(node.test, settled)):
            yield from (*body, *orelse)
        elif holds is not None:
            yield from orelse if holds else body


def _settled(nodes: tuple[ast.AST, ...]) -> Iterator[str]:
    """The names that say what was found: `can_import = True` in a `try`, `new_api = version >= "1.0"`, `def is_tf2():`."""
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    for node in nodes:
        if isinstance(node, ast.Try) and catches_absence(node):
            for inner in (*node.body, *(part for handler in node.handlers for part in handler.body)):
                if isinstance(inner, ast.Assign) and _says_whether(inner.value):
                    yield from (target.id for target in inner.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.Assign) and _asks(node.value):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.Return) and node.value and _asks(node.value):
            yield from (function.name for function in functions if node in function.body)


def _says_whether(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, bool))


def _asks(node: ast.expr) -> bool:
    names = {name for inner in ast.walk(node) for name in (getattr(inner, "id", ""), getattr(inner, "attr", "")) if name}
    return any(asked in name for asked in _ASKS for name in names)


def _mentions(node: ast.expr, names: frozenset[str]) -> bool:
    return any((getattr(inner, "id", None) or getattr(inner, "attr", None)) in names for inner in ast.walk(node))


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = [last_name(kind) if kind else "Exception" for kind in kinds]
    if any(name in _OF_ABSENCE for name in names):
        return True
    unknown = [kind for kind, name in zip(kinds, names, strict=True) if kind and not hasattr(builtins, name)]
    some = any(name in ("Exception", "BaseException") for name in names)
    return (some or any("errors" not in ast.unparse(kind) for kind in unknown)) and not _raises_again(handler)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    goes_on = (ast.Return, ast.Break, ast.Continue)
    return isinstance(handler.body[-1], ast.Raise) and not any(isinstance(node, goes_on) for node in ast.walk(handler))


def _of_python(test: ast.Compare) -> bool | None:
    """`sys.version_info[0] < 3`, `sys.version_info >= (3, 0)`: the same in every Python 3, or None."""
    left, text = test.left, ast.unparse(test.left)
    whole = text.endswith("version_info") and isinstance(test.comparators[0], ast.Tuple)
    major = text.endswith(("version_info[0]", "version_info.major")) and isinstance(left, ast.Subscript | ast.Attribute)
    try:
        other = ast.literal_eval(test.comparators[0])
        results = {_compare(test.ops[0], each if whole else each[0], other) for each in ((3, 8), (3, 99))}
    except (ValueError, TypeError):
        return None
    return results.pop() if (whole or major) and len(results) == 1 else None


def _compare(op: ast.cmpop, one: object, other: object) -> bool | None:
    compared = {ast.Lt: "__lt__", ast.LtE: "__le__", ast.Gt: "__gt__", ast.GtE: "__ge__", ast.Eq: "__eq__", ast.NotEq: "__ne__"}
    result = getattr(one, compared.get(type(op), ""), lambda _: None)(other)
    return result if isinstance(result, bool) else None
