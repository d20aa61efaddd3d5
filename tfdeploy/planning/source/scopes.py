"""Finds out what a name in the program stands for: a function, class, instance or module.

A name is resolved only if its scope (the function or module that defines it) defines it only once.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tfdeploy.planning.source.expressions import bound_name, dotted_name
from tfdeploy.planning.source.parsed_file import child_nodes
from tfdeploy.planning.source.source import Program, imported_files, resolve_imported_name

Function = ast.FunctionDef | ast.AsyncFunctionDef
# To resolve one name, at most this many imports, base classes and aliases are followed.
_DEPTH = 8


@dataclass(frozen=True)
class Meaning:
    """What a name stands for: the function or class `node`, or a module if `node` is None.

    If `is_instance` is true, the name stands for an instance of the class `node`. `owner`: if the
    name stands for a method, the class or instance through which the method was found.
    """

    # The scope in which `node` is defined; for a module, the module's own scope.
    scope: Scope
    node: Function | ast.ClassDef | None = None
    is_instance: bool = False
    owner: Meaning | None = None

    @property
    def instance_if_class(self) -> Meaning | None:
        """Return the instance that results from calling this class; None if this is not a class."""
        is_class = isinstance(self.node, ast.ClassDef) and not self.is_instance
        return replace(self, is_instance=True) if is_class else None


@dataclass(frozen=True)
class Scope:
    """The names that a module or function defines. `outer`: the scope that contains this one."""

    path: str
    outer: Scope | None = None
    # {name: the nodes that define the name}
    bound: dict[str, list[ast.AST]] = field(default_factory=dict)
    # For a method: {its first parameter, such as `self`: what this parameter stands for}.
    known_meanings: dict[str, Meaning] = field(default_factory=dict)


@lru_cache(maxsize=4)
def scopes_of(program: Program) -> Scopes:
    """Return the object that finds out what each name in this program refers to.

    The object is cached, so that all callers share its results.
    """
    return Scopes(program)


class Scopes:
    """Finds out what each name in a program refers to."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._modules: dict[str, Scope] = {}
        # {id of a function: {name: the nodes in the function's body that define the name}}
        self._definitions: dict[int, dict[str, list[ast.AST]]] = {}

    def module_scope(self, path: str) -> Scope:
        """Return the scope of a module: the names at its top level.

        The scope is empty if the file was not parsed.
        """
        if path not in self._modules:
            module = self._program.by_path.get(path)
            self._modules[path] = Scope(
                path, bound=_definitions(module.tree.body if module else [])
            )
        return self._modules[path]

    def function_scope(self, meaning: Meaning) -> Scope:
        """Return the scope of a function: the names that it defines, including its parameters."""
        node, owner, given = meaning.node, meaning.owner, dict[str, Meaning]()
        if not isinstance(node, Function):
            return meaning.scope
        names = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if (
            owner
            and names
            and not any(getattr(each, "id", "") == "staticmethod" for each in node.decorator_list)
        ):
            given[names[0].arg] = Meaning(owner.scope, owner.node, is_instance=True)
        if id(node) not in self._definitions:
            self._definitions[id(node)] = bound = _definitions(node.body)
            for name in names:
                bound.setdefault(name.arg, []).append(name)
        return Scope(meaning.scope.path, meaning.scope, self._definitions[id(node)], given)

    def meaning(self, node: ast.expr, scope: Scope, depth: int = _DEPTH) -> Meaning | None:
        """Return what the expression stands for; None if that is not known."""
        if depth == 0:
            return None
        match node:
            case ast.Name(name):
                return self._meaning_of_name(name, scope, depth)
            case ast.Attribute(value, name):
                owner = self.meaning(value, scope, depth - 1)
                member = self.member(owner, name, depth - 1) if owner else None
                return member or self._submodule(node, scope)
            case ast.Call(function):
                called = self.meaning(function, scope, depth - 1)
                return called.instance_if_class if called else None
        return None

    def member(self, owner: Meaning, name: str, depth: int = _DEPTH) -> Meaning | None:
        """Return the member of a module, class or instance; None if it is not known."""
        if owner.node is None:
            bound = name in owner.scope.bound
            return self._meaning_of_name(name, owner.scope, depth) if bound else None
        if not isinstance(owner.node, ast.ClassDef) or depth == 0:
            return None
        own = [each for each in owner.node.body if isinstance(each, Function) and each.name == name]
        if own:
            return Meaning(owner.scope, own[-1], owner=owner)
        bases = (self.meaning(base, owner.scope, depth - 1) for base in owner.node.bases)
        inherited = (self.member(base, name, depth - 1) for base in bases if base)
        return next((replace(each, owner=owner) for each in inherited if each), None)

    def _meaning_of_name(self, name: str, scope: Scope, depth: int) -> Meaning | None:
        if name in scope.known_meanings:
            return scope.known_meanings[name]
        if name not in scope.bound:
            return self._meaning_of_name(name, scope.outer, depth) if scope.outer else None
        match scope.bound[name] if depth else []:
            case [ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() as definition]:
                return Meaning(scope, definition)
            case [ast.Assign(value=value)]:
                return self.meaning(value, scope, depth - 1)
            case [ast.Import() | ast.ImportFrom() as statement]:
                return self._meaning_of_import(name, statement, scope, depth)
        return None

    def _meaning_of_import(
        self, name: str, node: ast.Import | ast.ImportFrom, scope: Scope, depth: int
    ) -> Meaning | None:
        alias = next(each for each in node.names if bound_name(each) == name)
        file, is_module = resolve_imported_name(self._program, node, alias)
        if file is None or (
            isinstance(node, ast.Import) and "." in alias.name and not alias.asname
        ):
            return None
        module = Meaning(self.module_scope(file))
        return module if is_module else self.member(module, alias.name, depth - 1)

    def _submodule(self, node: ast.Attribute, scope: Scope) -> Meaning | None:
        """Return the module that `a.b` stands for after `import a.b`, else None."""
        dotted = dotted_name(node)
        outer: Scope | None = scope if dotted else None
        while outer:
            for binder in outer.bound.get(dotted.split(".")[0], ()):
                if isinstance(binder, ast.Import) and any(
                    alias.name == dotted for alias in binder.names
                ):
                    files = list(
                        imported_files(self._program, outer.path, ast.Import([ast.alias(dotted)]))
                    )
                    return Meaning(self.module_scope(files[-1])) if files else None
            outer = outer.outer
        return None


def _definitions(body: list[ast.stmt]) -> dict[str, list[ast.AST]]:
    """Return {name: the nodes in these statements that define the name}.

    The bodies of functions and classes are not searched.
    """
    bound: defaultdict[str, list[ast.AST]] = defaultdict(list)
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                bound[node.name].append(node)
                continue
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    bound[bound_name(alias)].append(node)
            case ast.Assign([ast.Name(name)], value):
                bound[name].append(node)
                waiting.append(value)
                continue
            case ast.Name(name, ast.Store()):
                bound[name].append(node)
        waiting += child_nodes(node)
    return dict(bound)
