"""Where the values of a program come from: its flags and sys.argv, followed through names, calls and splits.

A small reading of the syntax trees, file by file: every value that a name is given in its function or module, what calls
hand to parameters, and what a function returns. It follows no containers but dictionaries by a literal key, and no
branches: a name that is given two values has both origins.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tfdeploy.planning.source.expressions import argument, last_name, text
from tfdeploy.planning.source.parsed_file import ParsedFile
from tfdeploy.planning.source.source import Program

# ("split", ","), ("item", 0), ("json", ""), ("key", "ps"), ("one", "") of [x]
Step = tuple[str, str | int]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_SAME = ("int", "str", "bool", "float", "list", "tuple", "sorted", "literal_str", "ensure_str", "strtobool", "ClusterSpec")
_STRIPPED = ("strip", "lstrip", "rstrip", "lower", "upper", "encode", "decode", "as_dict", "as_cluster_def")
_PARSED = ("loads", "literal_eval", "eval", "safe_load", "load")


class Origin(NamedTuple):
    """A flag by the attribute that has its value, or a position of sys.argv, and what is done with it."""

    dest: str
    position: int = 0
    steps: tuple[Step, ...] = ()

    def then(self, *steps: Step) -> Origin:
        return self._replace(steps=(*self.steps, *steps))


@dataclass(frozen=True)
class Scope:
    """The functions around a place, from the outermost one; `tree`: which file."""

    tree: int
    functions: tuple[Function, ...] = ()
    tests: tuple[tuple[ast.expr, bool], ...] = ()  # of the `if`s around it, and which branch

    def within(self, function: Function) -> Scope:
        return replace(self, functions=(*self.functions, function), tests=())

    def under(self, test: ast.expr, *, holds: bool) -> Scope:
        return replace(self, tests=(*self.tests, (test, holds)))

    def names(self) -> Iterator[int]:
        yield from (id(function) for function in reversed(self.functions))
        yield self.tree


class _Given(NamedTuple):
    """A value that a name is given, and which part of it."""

    value: ast.expr
    scope: Scope
    steps: tuple[Step, ...] = ()


class Origins:
    """The origins of the expressions of one program. `dests`: the attributes that hold flags."""

    def __init__(self, program: Program, dests: Collection[str]) -> None:
        self.dests = frozenset(dests)
        self.scopes: dict[int, Scope] = {}  # node -> the scope that it is in
        self._given: defaultdict[tuple[int, str], list[_Given]] = defaultdict(list)
        self._attributes: defaultdict[str, list[_Given]] = defaultdict(list)
        self._calls: defaultdict[str, list[tuple[ast.Call, Scope]]] = defaultdict(list)
        self._returned: defaultdict[str, list[_Given]] = defaultdict(list)
        self._names: dict[int, str] = {}  # function -> what it is called by
        self._known: dict[int, frozenset[Origin]] = {}
        self._trees = len(program.modules)
        for number, module in enumerate(program.modules):
            self._read(module, Scope(number))

    def of(self, node: ast.expr | None, scope: Scope) -> frozenset[Origin]:
        """Every origin that the expression may have; empty where none is known."""
        if node is None:
            return frozenset()
        if id(node) not in self._known:
            self._known[id(node)] = frozenset()  # for a value that is made of itself
            self._known[id(node)] = frozenset(self._of(node, scope))
        return self._known[id(node)]

    def values(self, node: ast.expr, scope: Scope, depth: int = 4) -> Iterator[tuple[ast.expr, Scope]]:
        """The expression and the expressions that it stands for, through names."""
        yield node, scope
        if isinstance(node, ast.Name) and depth:
            for given in self._named(node.id, scope):
                if not given.steps:
                    yield from self.values(given.value, given.scope, depth - 1)

    def _of(self, node: ast.expr, scope: Scope) -> Iterator[Origin]:
        if isinstance(node, ast.Name):
            for given in self._named(node.id, scope):
                yield from self._part(given)
            yield from self._parameter(node.id, scope)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node, scope)
        elif isinstance(node, ast.Subscript):
            yield from self._subscript(node, scope)
        elif isinstance(node, ast.Call):
            yield from self._call(node, scope)
        elif isinstance(node, ast.BoolOp | ast.IfExp):
            for each in node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse):
                yield from self.of(each, scope)
        elif isinstance(node, ast.ListComp | ast.GeneratorExp) and len(node.generators) == 1:
            if _passed_through(node.elt, node.generators[0].target):
                yield from self.of(node.generators[0].iter, scope)
        elif isinstance(node, ast.List | ast.Tuple) and len(node.elts) == 1:
            yield from (origin.then(("one", "")) for origin in self.of(node.elts[0], scope))

    def _part(self, given: _Given) -> Iterator[Origin]:
        start = _argv_start(given.value)
        if start is not None and given.steps[:1] and given.steps[0][0] == "item":
            yield Origin("", start + int(given.steps[0][1]), given.steps[1:])
            return
        yield from (origin.then(*given.steps) for origin in self.of(given.value, given.scope))

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Iterator[Origin]:
        if node.attr in self.dests:
            yield Origin(node.attr)
        elif node.attr == "value":  # of absl's flag holders
            yield from self.of(node.value, scope)
        else:
            for given in (*self._attributes[node.attr], *self._of_modules(node.attr, scope)):
                yield from self._part(given)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Iterator[Origin]:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        start = _argv_start(node.value)
        if isinstance(key, int) and start is not None:
            yield from [Origin("", start + key)] if start + key > 0 and key >= 0 else []
        elif isinstance(key, str):
            inner = self.of(node.value, scope)
            yield from (origin.then(("key", key)) for origin in inner)
            if not inner and key in self.dests:
                yield Origin(key)
        elif isinstance(key, int):
            yield from (origin.then(("item", key)) for origin in self.of(node.value, scope))

    def _call(self, node: ast.Call, scope: Scope) -> Iterator[Origin]:
        name, first = last_name(node.func), node.args[0] if node.args else None
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name.startswith("DEFINE_") and text(first):
            yield Origin(str(text(first)).replace("-", "_"))
        elif name == "split" and owner is not None:
            of_re = last_name(owner) == "re"
            by = " " if first is None else text(first) or ""
            split = self.of(node.args[1] if of_re and node.args[1:] else owner, scope)
            yield from (origin.then(("split", by)) for origin in split if by)
        elif name in _STRIPPED and owner is not None:
            yield from self.of(owner, scope)
        elif name in _PARSED:
            yield from (origin.then(("json", "")) for origin in self.of(first, scope))
        elif name in _SAME:
            yield from self.of(first, scope)
        elif name in ("map", "filter"):
            yield from self.of(node.args[1] if node.args[1:] else None, scope)
        elif name in ("getattr", "get"):
            key = text(next(iter(node.args[name == "getattr" :]), None)) or ""
            yield from [Origin(key)] if key in self.dests else self.of(next(iter(node.args[1:]), None), scope)
        else:
            for given in self._returned[name]:
                yield from self._part(given)

    def _named(self, name: str, scope: Scope) -> list[_Given]:
        for key in scope.names():
            if (key, name) in self._given:
                return self._given[key, name]
        parameter = any(name in _parameters(function) for function in scope.functions)
        return [] if parameter else self._of_modules(name, scope)

    def _of_modules(self, name: str, scope: Scope) -> list[_Given]:
        """What other modules of the program call so."""
        return [given for tree in range(self._trees) if tree != scope.tree for given in self._given.get((tree, name), ())]

    def _parameter(self, name: str, scope: Scope) -> Iterator[Origin]:
        for function in reversed(scope.functions):
            if name not in (parameters := _parameters(function)):
                continue
            if isinstance(function, ast.FunctionDef) and name in self.dests and _is_command(function):
                yield Origin(name)
            own = parameters[1:] if parameters[0] in ("self", "cls") else parameters
            for call, at in self._calls[self._names.get(id(function), "")]:
                yield from self.of(_argument(call, name, own), at)
            return

    def _read(self, module: ParsedFile, scope: Scope) -> None:
        """Record what the file gives to names."""
        within: list[tuple[Scope, str]] = []  # for each node: the scope of what is in it, and the class around that
        for node, parent in zip(module.nodes, module.parents, strict=True):
            around, owner = within[parent] if within else (scope, "")
            around = self.scopes.setdefault(id(node), around)
            self._record(node, around)
            if isinstance(node, ast.If | ast.IfExp):
                self._branch(node, around)
            elif isinstance(node, Function):
                around = around.within(node)
                if not isinstance(node, ast.Lambda):
                    self._names[id(node)] = owner if node.name == "__init__" else node.name
            within.append((around, node.name if isinstance(node, ast.ClassDef) else owner))

    def _branch(self, node: ast.If | ast.IfExp, scope: Scope) -> None:
        """Put what is in a branch below the test that holds for it."""
        for branch, holds in ((node.body, True), (node.orelse, False)):
            below = scope.under(node.test, holds=holds)
            for child in branch if isinstance(branch, list) else [branch]:
                self.scopes[id(child)] = below

    def _record(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, scope, ())
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            self._assign(node.target, node.value, scope, ())
        elif isinstance(node, ast.Call):
            self._calls[last_name(node.func)].append((node, scope))
        elif isinstance(node, ast.Return) and node.value is not None and scope.functions:
            self._returned[self._names.get(id(scope.functions[-1]), "")].append(_Given(node.value, scope))

    def _assign(self, target: ast.expr, value: ast.expr, scope: Scope, steps: tuple[Step, ...]) -> None:
        if isinstance(target, ast.Name):
            self._given[next(scope.names()), target.id].append(_Given(value, scope, steps))
        elif isinstance(target, ast.Attribute):
            self._attributes[target.attr].append(_Given(value, scope, steps))
        elif isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) and not steps
            for at, each in enumerate(target.elts):
                if same and isinstance(value, ast.Tuple | ast.List):
                    self._assign(each, value.elts[at], scope, ())
                else:
                    self._assign(each, value, scope, (*steps, ("item", at)))


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _argument(call: ast.Call, name: str, parameters: list[str]) -> ast.expr | None:
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    return argument(call, name, parameters.index(name) if name in parameters and not starred else None)


def _is_command(function: ast.FunctionDef) -> bool:
    """Whether click calls it with its options."""
    return any(last_name(each.func if isinstance(each, ast.Call) else each) == "option" for each in function.decorator_list)


def _passed_through(element: ast.expr, target: ast.expr) -> bool:
    """Whether a comprehension keeps its items, as [host.strip() for host in hosts] does."""
    while isinstance(element, ast.Call) and not element.keywords:
        if isinstance(element.func, ast.Attribute) and element.func.attr in _STRIPPED:
            element = element.func.value
        elif last_name(element.func) == "str" and len(element.args) == 1:
            element = element.args[0]
        else:
            return False
    return isinstance(element, ast.Name) and isinstance(target, ast.Name) and element.id == target.id


def _argv_start(node: ast.expr) -> int | None:
    """Which word is the first of sys.argv, or of sys.argv[1:]; None for anything else."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and _argv_start(node.value) == 0:
        lower = node.slice.lower
        if lower is None:
            return 0
        return lower.value if isinstance(lower, ast.Constant) and isinstance(lower.value, int) else None
    is_argv = isinstance(node, ast.Attribute) and node.attr == "argv" and last_name(node.value) == "sys"
    return 0 if is_argv or (isinstance(node, ast.Name) and node.id == "argv") else None
