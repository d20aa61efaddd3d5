"""Finds where values of a program come from: its flags and sys.argv, through names, calls and
splits.

Reads the syntax trees file by file. It records every value that a name gets in its function or
module, the arguments that calls pass to parameters, and the values that functions return. Of
containers it follows only dictionaries with literal keys. It ignores branches: a name that gets two
values has both origins.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tfdeploy.planning.source.expressions import argument, last_name, text
from tfdeploy.planning.source.parsed_file import ParsedFile
from tfdeploy.planning.source.source import Program

# One operation on a value: ("split", ","), ("item", 0), ("json", ""), ("key", "ps"), or ("one", "")
# for a list of one element.
Step = tuple[str, str | int]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_SAME = (
    "int",
    "str",
    "bool",
    "float",
    "list",
    "tuple",
    "sorted",
    "literal_str",
    "ensure_str",
    "strtobool",
    "ClusterSpec",
)
_STRIPPED = (
    "strip",
    "lstrip",
    "rstrip",
    "lower",
    "upper",
    "encode",
    "decode",
    "as_dict",
    "as_cluster_def",
)
_PARSED = ("loads", "literal_eval", "eval", "safe_load", "load")


ARGV = "sys.argv"


class Origin(NamedTuple):
    """A flag or a word of sys.argv, with the steps that the program applies to its value.

    `dest`: the attribute that holds the flag's value. If `dest` is "", `position` is the position
    in sys.argv. If `dest` is ARGV, the origin is all words of sys.argv from `position` on.
    """

    dest: str
    position: int = 0
    steps: tuple[Step, ...] = ()

    def then(self, *steps: Step) -> Origin:
        """Return the origin after further steps.

        An item of sys.argv becomes the word at its position.
        """
        if self.dest == ARGV and steps[:1] and steps[0][0] == "item":
            return Origin("", self.position + int(steps[0][1]), steps[1:])
        return self._replace(steps=(*self.steps, *steps))


class _Given(NamedTuple):
    """A value that a name gets, the file of this value, and the part of the value that the name
    gets."""

    value: ast.expr
    module: ParsedFile
    steps: tuple[Step, ...] = ()


class Origins:
    """The origins of the expressions of one program. `dests`: the attributes that hold flags."""

    def __init__(self, program: Program, dests: Collection[str]) -> None:
        self._program, self._dests = program, frozenset(dests)
        # (id of a function or of a module's tree, name) -> the values that the name gets there
        self._given: defaultdict[tuple[int, str], list[_Given]] = defaultdict(list)
        self._attributes: defaultdict[str, list[_Given]] = defaultdict(list)
        self._calls: defaultdict[str, list[tuple[ast.Call, ParsedFile]]] = defaultdict(list)
        self._returned: defaultdict[str, list[_Given]] = defaultdict(list)
        self._known: dict[int, frozenset[Origin]] = {}
        for module in program.modules:
            for node in module.nodes:
                self._record(node, module)

    def origins_of(self, node: ast.expr | None, module: ParsedFile) -> frozenset[Origin]:
        """Return every origin that the expression may have; empty if none is known."""
        if node is None:
            return frozenset()
        if id(node) not in self._known:
            # This entry ends the recursion for a value that depends on itself.
            self._known[id(node)] = frozenset()
            origins = self._origins_of(node, module)
            # Position 0 of sys.argv is the program itself.
            self._known[id(node)] = frozenset(
                each for each in origins if each.dest or each.position > 0
            )
        return self._known[id(node)]

    def values(
        self, node: ast.expr, module: ParsedFile, depth: int = 4
    ) -> Iterator[tuple[ast.expr, ParsedFile]]:
        """Yield the expression and the expressions that it stands for, through at most `depth`
        names."""
        yield node, module
        if isinstance(node, ast.Name) and depth:
            for given in self._named(node, module):
                if not given.steps:
                    yield from self.values(given.value, given.module, depth - 1)

    def _origins_of(self, node: ast.expr, module: ParsedFile) -> Iterator[Origin]:
        if isinstance(node, ast.Name):
            yield from [Origin(ARGV)] if node.id == "argv" else []
            for given in self._named(node, module):
                yield from self._part(given)
            yield from self._parameter(node, module)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node, module)
        elif isinstance(node, ast.Subscript):
            yield from self._subscript(node, module)
        elif isinstance(node, ast.Call):
            yield from self._call(node, module)
        elif isinstance(node, ast.BoolOp | ast.IfExp):
            for each in node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse):
                yield from self.origins_of(each, module)
        elif isinstance(node, ast.ListComp | ast.GeneratorExp):
            yield from self.origins_of(node.elt, module)
        elif isinstance(node, ast.List | ast.Tuple) and len(node.elts) == 1:
            yield from (
                origin.then(("one", "")) for origin in self.origins_of(node.elts[0], module)
            )

    def _part(self, given: _Given) -> Iterator[Origin]:
        yield from (
            origin.then(*given.steps) for origin in self.origins_of(given.value, given.module)
        )

    def _attribute(self, node: ast.Attribute, module: ParsedFile) -> Iterator[Origin]:
        if node.attr in self._dests:
            yield Origin(node.attr)
        elif node.attr == "argv" and last_name(node.value) == "sys":
            yield Origin(ARGV)
        # An absl flag holder has its value in the attribute `value`.
        elif node.attr == "value":
            yield from self.origins_of(node.value, module)
        else:
            for given in (*self._attributes[node.attr], *self._of_modules(node.attr, module)):
                yield from self._part(given)

    def _subscript(self, node: ast.Subscript, module: ParsedFile) -> Iterator[Origin]:
        inner = self.origins_of(node.value, module)
        if isinstance(node.slice, ast.Slice):
            first = node.slice.lower
            start = getattr(first, "value", None) if first else 0
            if isinstance(start, int):
                argv_origins = [origin for origin in inner if origin.dest == ARGV]
                yield from (
                    origin._replace(position=origin.position + start) for origin in argv_origins
                )
            return
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(key, int):
            yield from (origin.then(("item", key)) for origin in inner)
        elif isinstance(key, str):
            yield from (origin.then(("key", key)) for origin in inner)
            if not inner and key in self._dests:
                yield Origin(key)

    def _call(self, node: ast.Call, module: ParsedFile) -> Iterator[Origin]:
        name, first = last_name(node.func), node.args[0] if node.args else None
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name.startswith("DEFINE_") and text(first):
            yield Origin(str(text(first)).replace("-", "_"))
        elif name == "split" and owner is not None:
            of_re = last_name(owner) == "re"
            by = " " if first is None else text(first) or ""
            split = self.origins_of(node.args[1] if of_re and node.args[1:] else owner, module)
            yield from (origin.then(("split", by)) for origin in split if by)
        elif name in _STRIPPED and owner is not None:
            yield from self.origins_of(owner, module)
        elif name in _PARSED:
            yield from (origin.then(("json", "")) for origin in self.origins_of(first, module))
        elif name in _SAME:
            yield from self.origins_of(first, module)
        elif name in ("map", "filter"):
            yield from self.origins_of(node.args[1] if node.args[1:] else None, module)
        elif name in ("getattr", "get"):
            key = text(next(iter(node.args[name == "getattr" :]), None)) or ""
            yield from (
                [Origin(key)]
                if key in self._dests
                else self.origins_of(next(iter(node.args[1:]), None), module)
            )
        else:
            for given in self._returned[name]:
                yield from self._part(given)

    def _named(self, node: ast.Name, module: ParsedFile) -> list[_Given]:
        functions = functions_around(node, module)
        for scope in (*functions, module.tree):
            if (id(scope), node.id) in self._given:
                return self._given[id(scope), node.id]
        is_parameter = any(node.id in _parameters(function) for function in functions)
        return [] if is_parameter else self._of_modules(node.id, module)

    def _of_modules(self, name: str, module: ParsedFile) -> list[_Given]:
        """Return the values that other modules of the program give to this name."""
        others = [id(other.tree) for other in self._program.modules if other is not module]
        return [given for tree in others for given in self._given.get((tree, name), ())]

    def _parameter(self, node: ast.Name, module: ParsedFile) -> Iterator[Origin]:
        name = node.id
        for function in functions_around(node, module):
            if name not in (parameters := _parameters(function)):
                continue
            if (
                isinstance(function, ast.FunctionDef)
                and name in self._dests
                and _is_command(function)
            ):
                yield Origin(name)
            own = parameters[1:] if parameters[0] in ("self", "cls") else parameters
            for call, at in self._calls[_called_by(function, module)]:
                yield from self.origins_of(_argument(call, name, own), at)
            return

    def _record(self, node: ast.AST, module: ParsedFile) -> None:
        """Record the value that the node gives to a name, a parameter, or the result of a
        function."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, _Given(node.value, module))
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            self._assign(node.target, _Given(node.value, module))
        # An item of a list has the same origin as the list.
        elif isinstance(node, ast.comprehension):
            self._assign(node.target, _Given(node.iter, module))
        elif isinstance(node, ast.Call):
            self._calls[last_name(node.func)].append((node, module))
        elif isinstance(node, ast.Return) and node.value is not None:
            for function in functions_around(node, module)[:1]:
                self._returned[_called_by(function, module)].append(_Given(node.value, module))

    def _assign(self, target: ast.expr, given: _Given) -> None:
        value = given.value
        if isinstance(target, ast.Name):
            scope = next(iter(functions_around(target, given.module)), given.module.tree)
            self._given[id(scope), target.id].append(given)
        elif isinstance(target, ast.Attribute):
            self._attributes[target.attr].append(given)
        elif isinstance(target, ast.Tuple | ast.List):
            literal = isinstance(value, ast.Tuple | ast.List) and not given.steps
            parts = value.elts if literal and isinstance(value, ast.Tuple | ast.List) else []
            for at, each in enumerate(target.elts):
                if len(parts) == len(target.elts):
                    self._assign(each, given._replace(value=parts[at]))
                else:
                    self._assign(each, given._replace(steps=(*given.steps, ("item", at))))


def functions_around(node: ast.AST, module: ParsedFile) -> list[Function]:
    """Return the functions around a node, innermost first."""
    return [each for each in module.around(node) if isinstance(each, Function)]


def _called_by(function: Function, module: ParsedFile) -> str:
    """Return the name by which calls name the function: its own, or that of its class for
    __init__."""
    if isinstance(function, ast.Lambda):
        return ""
    if function.name != "__init__":
        return function.name
    classes = (each for each in module.around(function) if isinstance(each, ast.ClassDef))
    return next((each.name for each in classes), "")


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _argument(call: ast.Call, name: str, parameters: list[str]) -> ast.expr | None:
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    return argument(
        call, name, parameters.index(name) if name in parameters and not starred else None
    )


def _is_command(function: ast.FunctionDef) -> bool:
    """Return whether click calls the function with its options."""
    return any(
        last_name(each.func if isinstance(each, ast.Call) else each) == "option"
        for each in function.decorator_list
    )
