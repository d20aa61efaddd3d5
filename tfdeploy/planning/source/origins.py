"""Finds out from which flags or words of sys.argv the values in a program come.

A value is followed through names, through parameters and results of functions, and through
operations such as a split. A subscript is followed only if its key is a literal, as in `x["ps"]`.
Branches are ignored: if a program assigns two values to a name, the name has the origins of both.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tfdeploy.planning.source.expressions import (
    argument,
    decorator_name,
    elements,
    last_name,
    literal_text,
)
from tfdeploy.planning.source.parsed_file import enclosing_nodes, file_of
from tfdeploy.planning.source.source import Program

# One operation that the program applies to a value. ("split", ",") splits a text at commas.
# ("item", 0) takes the first item of a list. ("json", "") parses JSON. ("key", "ps") takes the
# value of the key "ps". ("one", "") makes a list whose only element is the value.
Step = tuple[str, str | int]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

# The result of each of these functions has the same origins as the function's first argument.
_SAME = """
    int str bool float list tuple sorted literal_str ensure_str strtobool ClusterSpec
"""
# The result of each of these methods has the same origins as the object whose method is called.
_STRIPPED = "strip lstrip rstrip lower upper encode decode as_dict as_cluster_def"
_PARSED = ("loads", "literal_eval", "eval", "safe_load", "load")


ARGV = "sys.argv"


class Origin(NamedTuple):
    """A flag or a word of sys.argv, with the operations (`steps`) that are applied to its value.

    `dest` names the flag: it is the attribute of the parsed arguments that holds the flag's value.
    If `dest` is "", the origin is the word of sys.argv at `position`. If `dest` is ARGV, the origin
    is all words of sys.argv from `position` on.
    """

    dest: str
    position: int = 0
    steps: tuple[Step, ...] = ()

    def with_steps(self, *steps: Step) -> Origin:
        """Return a copy of this origin that has the given steps after its own steps."""
        if self.dest == ARGV and steps[:1] and steps[0][0] == "item":
            return Origin("", self.position + int(steps[0][1]), steps[1:])
        return self._replace(steps=(*self.steps, *steps))


class _AssignedValue(NamedTuple):
    """An expression that a program assigns to a name.

    `steps`: the operations by which the name gets only a part of the expression's value. For `b` in
    `a, b = value`, they are (("item", 1),).
    """

    value: ast.expr
    steps: tuple[Step, ...] = ()


class Origins:
    """Finds the origins of expressions in one program: the flags from which their values come.

    `dests`: the attributes of the parsed arguments that hold the values of flags.
    """

    def __init__(self, program: Program, dests: Collection[str]) -> None:
        self._program, self._dests = program, frozenset(dests)
        # {(id of a function or of a module's tree, name): the values that are assigned to the name
        # in this function or module}.
        self._given: defaultdict[tuple[int, str], list[_AssignedValue]] = defaultdict(list)
        self._attributes: defaultdict[str, list[_AssignedValue]] = defaultdict(list)
        self._calls: defaultdict[str, list[ast.Call]] = defaultdict(list)
        self._returned: defaultdict[str, list[_AssignedValue]] = defaultdict(list)
        self._known: dict[int, frozenset[Origin]] = {}
        for module in program.modules:
            for node in module.nodes:
                self._record_values(node)

    def origins_of(self, node: ast.expr | None) -> frozenset[Origin]:
        """Return all flags and words of sys.argv from which the expression's value may come."""
        if node is None:
            return frozenset()
        if id(node) not in self._known:
            # If the value depends on itself, the recursion finds this entry and stops.
            self._known[id(node)] = frozenset()
            origins = self._origins_of(node)
            # sys.argv[0] is left out, because it is the path of the program and not an argument.
            self._known[id(node)] = frozenset(
                each for each in origins if each.dest or each.position > 0
            )
        return self._known[id(node)]

    def assigned_values(self, node: ast.expr, depth: int = 4) -> Iterator[ast.expr]:
        """Yield the expression. If it is a name, also yield the expressions assigned to the name.

        After `b = 3` and `a = b`, the expression `a` yields `a`, `b` and `3`. At most `depth` names
        are followed.
        """
        yield node
        if isinstance(node, ast.Name) and depth:
            for given in self._values_assigned_to(node):
                if not given.steps:
                    yield from self.assigned_values(given.value, depth - 1)

    def _origins_of(self, node: ast.expr) -> Iterator[Origin]:
        match node:
            case ast.Name("argv") | ast.Attribute(ast.Name("sys"), "argv"):
                yield Origin(ARGV)
            case ast.Attribute(attr=name) if name in self._dests:
                yield Origin(name)
            # DEFINE_string of absl returns an object whose attribute `value` is the flag's value.
            case ast.Attribute(value, "value"):
                yield from self.origins_of(value)
            case ast.Attribute(attr=name):
                yield from self._origins_of_assigned(
                    *self._attributes[name], *self._values_of_same_name_elsewhere(name, node)
                )
            case ast.Subscript(value, key):
                yield from self._origins_of_item(self.origins_of(value), key)
            case ast.Call():
                yield from self._origins_of_call(node)
            case ast.BoolOp(values=values):
                for each in values:
                    yield from self.origins_of(each)
            case ast.IfExp(body=body, orelse=orelse):
                yield from self.origins_of(body) | self.origins_of(orelse)
            case ast.ListComp(element) | ast.GeneratorExp(element):
                yield from self.origins_of(element)
            case ast.List([element]) | ast.Tuple([element]):
                yield from self._origins_with_step(("one", ""), element)
        if isinstance(node, ast.Name):
            yield from self._origins_of_assigned(*self._values_assigned_to(node))
            yield from self._origins_of_parameter(node)

    def _origins_with_step(self, step: Step, node: ast.expr | None) -> Iterator[Origin]:
        """Yield the origins of the expression, each with `step` as its last operation."""
        yield from (origin.with_steps(step) for origin in self.origins_of(node))

    def _origins_of_assigned(self, *values: _AssignedValue) -> Iterator[Origin]:
        for value, steps in values:
            yield from (origin.with_steps(*steps) for origin in self.origins_of(value))

    def _origins_of_item(self, inner: frozenset[Origin], key: ast.expr) -> Iterator[Origin]:
        """Yield the origins of a value `x[key]`. `inner`: the origins of x."""
        match key:
            case ast.Slice(lower):
                start = getattr(lower, "value", None) if lower else 0
                if isinstance(start, int):
                    words = (origin for origin in inner if origin.dest == ARGV)
                    yield from (word._replace(position=word.position + start) for word in words)
            case ast.Constant(int(index)):
                yield from (origin.with_steps(("item", index)) for origin in inner)
            case ast.Constant(str(name)):
                yield from (origin.with_steps(("key", name)) for origin in inner)
                if not inner and name in self._dests:
                    yield Origin(name)

    def _origins_of_call(self, node: ast.Call) -> Iterator[Origin]:
        name = last_name(node.func)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        first, second, *_ = *node.args, None, None
        if name.startswith("DEFINE_") and literal_text(first):
            yield Origin(str(literal_text(first)).replace("-", "_"))
        elif name == "split" and owner is not None:
            of_re = second is not None and last_name(owner) == "re"
            if by := " " if first is None else literal_text(first):
                yield from self._origins_with_step(("split", by), second if of_re else owner)
        elif name in _STRIPPED.split() and owner is not None:
            yield from self.origins_of(owner)
        elif name in _PARSED:
            yield from self._origins_with_step(("json", ""), first)
        elif name in _SAME.split():
            yield from self.origins_of(first)
        elif name in ("map", "filter"):
            yield from self.origins_of(second)
        elif name in ("getattr", "get"):
            key = literal_text(second if name == "getattr" else first)
            yield from [Origin(key)] if key in self._dests else self.origins_of(second)
        else:
            yield from self._origins_of_assigned(*self._returned[name])

    def _values_assigned_to(self, node: ast.Name) -> list[_AssignedValue]:
        functions = functions_around(node)
        for scope in (*functions, file_of(node).tree):
            if given := self._given.get((id(scope), node.id)):
                return given
        is_parameter = any(node.id in _parameter_names(function) for function in functions)
        return [] if is_parameter else self._values_of_same_name_elsewhere(node.id, node)

    def _values_of_same_name_elsewhere(self, name: str, node: ast.expr) -> list[_AssignedValue]:
        """Return the values that the other modules of the program assign to this name.

        `node`: the place where the name is used. Its module is left out.
        """
        own = file_of(node)
        others = [id(other.tree) for other in self._program.modules if other is not own]
        return [given for tree in others for given in self._given.get((tree, name), ())]

    def _origins_of_parameter(self, node: ast.Name) -> Iterator[Origin]:
        name = node.id
        for function in functions_around(node):
            if name not in (parameters := _parameter_names(function)):
                continue
            decorators = map(decorator_name, getattr(function, "decorator_list", ()))
            # click passes each option to the decorated function, as a parameter of the same name.
            if name in self._dests and "option" in decorators:
                yield Origin(name)
            own = parameters[1:] if parameters[0] in ("self", "cls") else parameters
            for call in self._calls[_name_in_calls(function)]:
                yield from self.origins_of(_argument(call, name, own))
            return

    def _record_values(self, node: ast.AST) -> None:
        """Record each value that this syntax node assigns, passes to a function, or returns."""
        match node:
            case ast.Assign(targets, value):
                for target in targets:
                    self._record_assignment(target, _AssignedValue(value))
            # The loop variable of a comprehension gets the same origins as the list that the
            # comprehension iterates over.
            case (
                ast.AnnAssign(target, value=ast.expr() as value)
                | ast.NamedExpr(target, value)
                | ast.comprehension(target, value)
            ):
                self._record_assignment(target, _AssignedValue(value))
            case ast.Call(called):
                self._calls[last_name(called)].append(node)
            case ast.Return(ast.expr() as value):
                for function in functions_around(node)[:1]:
                    self._returned[_name_in_calls(function)].append(_AssignedValue(value))

    def _record_assignment(self, target: ast.expr, given: _AssignedValue) -> None:
        match target:
            case ast.Name(name):
                scope = next(iter(functions_around(target)), file_of(target).tree)
                self._given[id(scope), name].append(given)
            case ast.Attribute(attr=name):
                self._attributes[name].append(given)
            case ast.Tuple(targets) | ast.List(targets):
                parts = [] if given.steps else elements(given.value)
                for at, each in enumerate(targets):
                    if len(parts) == len(targets):
                        self._record_assignment(each, given._replace(value=parts[at]))
                    else:
                        self._record_assignment(
                            each, given._replace(steps=(*given.steps, ("item", at)))
                        )


def functions_around(node: ast.AST) -> list[Function]:
    """Return the functions that contain a node, innermost first."""
    return [each for each in enclosing_nodes(node) if isinstance(each, Function)]


def _name_in_calls(function: Function) -> str:
    """Return the name by which calls name the function: for __init__, the name of its class."""
    name: str = getattr(function, "name", "")  # a lambda has no name
    if name != "__init__":
        return name
    classes = (each.name for each in enclosing_nodes(function) if isinstance(each, ast.ClassDef))
    return next(classes, "")


def _parameter_names(function: Function) -> list[str]:
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _argument(call: ast.Call, name: str, parameters: list[str]) -> ast.expr | None:
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    return argument(
        call, name, parameters.index(name) if name in parameters and not starred else None
    )
