"""Finds out which flags or words of sys.argv the values in a program come from.

A value is followed through names, parameters and results of functions, and operations such as a
split. Of containers, only dictionaries with literal keys are followed. Branches are ignored: a name
to which a program assigns two values has the origins of both.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tfdeploy.planning.source.expressions import argument, last_name, text
from tfdeploy.planning.source.parsed_file import ParsedFile
from tfdeploy.planning.source.source import Program

# One operation that the program applies to a value: ("split", ","), ("item", 0), ("json", ""),
# ("key", "ps"), or ("one", "") if it makes a list of one element.
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

    `dest`: for a flag, the attribute of the parsed arguments that holds its value. "" stands for
    the word of sys.argv at `position`, and ARGV for all words of sys.argv from `position` on.
    """

    dest: str
    position: int = 0
    steps: tuple[Step, ...] = ()

    def then(self, *steps: Step) -> Origin:
        """Return the origin of a value that these operations make from a value of this origin."""
        if self.dest == ARGV and steps[:1] and steps[0][0] == "item":
            return Origin("", self.position + int(steps[0][1]), steps[1:])
        return self._replace(steps=(*self.steps, *steps))


class _Given(NamedTuple):
    """An expression that a program assigns to a name, and the file that contains it.

    `steps`: the operations that lead from its value to that of the name.
    """

    value: ast.expr
    module: ParsedFile
    steps: tuple[Step, ...] = ()


class Origins:
    """Finds the origins of the expressions of one program: the flags they come from.

    `dests`: the attributes of the parsed arguments that hold flags.
    """

    def __init__(self, program: Program, dests: Collection[str]) -> None:
        self._program, self._dests = program, frozenset(dests)
        # (id of a function or of a module's tree, name) -> the values assigned to the name there
        self._given: defaultdict[tuple[int, str], list[_Given]] = defaultdict(list)
        self._attributes: defaultdict[str, list[_Given]] = defaultdict(list)
        self._calls: defaultdict[str, list[tuple[ast.Call, ParsedFile]]] = defaultdict(list)
        self._returned: defaultdict[str, list[_Given]] = defaultdict(list)
        self._known: dict[int, frozenset[Origin]] = {}
        for module in program.modules:
            for node in module.nodes:
                self._record(node, module)

    def origins_of(self, node: ast.expr | None, module: ParsedFile) -> frozenset[Origin]:
        """Return all flags and words of sys.argv from which the expression's value may come."""
        if node is None:
            return frozenset()
        if id(node) not in self._known:
            # If the value depends on itself, the recursion finds this entry and ends.
            self._known[id(node)] = frozenset()
            origins = self._origins_of(node, module)
            # sys.argv[0] is the path of the program, so it is no origin.
            self._known[id(node)] = frozenset(
                each for each in origins if each.dest or each.position > 0
            )
        return self._known[id(node)]

    def values(
        self, node: ast.expr, module: ParsedFile, depth: int = 4
    ) -> Iterator[tuple[ast.expr, ParsedFile]]:
        """Yield the expression, and if it is a name, the expressions assigned to the name.

        Chains of names are followed for at most `depth` names.
        """
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
        # DEFINE_string of absl returns an object whose attribute `value` is the flag's value.
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
        """Return the values that other modules of the program assign to a name of this spelling."""
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
        """Record what this node assigns to a name, passes to a function, or returns from one."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, _Given(node.value, module))
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            self._assign(node.target, _Given(node.value, module))
        # The loop variable of a comprehension has the same origin as the list.
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
    """Return the functions that contain a node, innermost first."""
    return [each for each in module.around(node) if isinstance(each, Function)]


def _called_by(function: Function, module: ParsedFile) -> str:
    """Return the name in a call of the function: its own name, or the class name for __init__."""
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
    """Return whether the function is a click command, so that click passes its options to it."""
    return any(
        last_name(each.func if isinstance(each, ast.Call) else each) == "option"
        for each in function.decorator_list
    )
