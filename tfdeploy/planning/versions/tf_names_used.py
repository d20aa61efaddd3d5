"""Finds the names of TensorFlow that a program uses, and their places.

Names are written without the leading `tf.`: "train.Supervisor", "contrib.slim". A use is marked as
guarded if the program itself handles the case that the name is missing. A module of the program may
get TensorFlow from another module of the program: `from common import tf`, or `import common` and
then `common.tf.layers`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from tfdeploy.planning.source import guards
from tfdeploy.planning.source.expressions import bound_name, dotted_name, target_names
from tfdeploy.planning.source.parsed_file import ParsedFile, place_of, subtree
from tfdeploy.planning.source.source import Program, resolve_imported_name
from tfdeploy.runtime.old_names import removed_names

_EXPORT_DEPTH = 4  # limits the length of a chain of modules that import a name from each other
_OF_KERAS = ("keras", "layers", "nn.rnn_cell")
_CHAINS: tuple[type[ast.Attribute | ast.Name], ...] = (ast.Attribute, ast.Name)
# {name in a module of the program, such as "tf", "common.tf" or "slim": the TensorFlow name of the
# same object, such as "", "" or "contrib.slim"}
Names = dict[str, str]


@dataclass(frozen=True)
class NameUse:
    """A use of one TensorFlow name.

    `is_guarded`: the program itself handles the case that the name is missing.

    `binds`: the use only imports the name or gives it another name (`slim = tf.contrib.slim`). Such
    a statement never fails, because tfdeploy supplies a stand-in, an object that raises an error
    only when the program uses it.

    `is_certain`: whether the use certainly means TensorFlow. It is False for `slim.conv2d` if the
    module also assigns another value to `slim`. It is always True for names such as `tf`, which
    stand for TensorFlow itself.
    """

    name: str
    node: ast.stmt | ast.expr = field(repr=False)
    is_guarded: bool = False
    binds: bool = False
    is_certain: bool = True

    @property
    def where(self) -> str:
        """Return the place of the use, such as "train.py:12"."""
        return place_of(self.node)

    @property
    def bare_name(self) -> str:
        """Return the name without a leading `compat.v1.`."""
        return self.name.removeprefix("compat.v1.")


@lru_cache(maxsize=4)
def tensorflow_uses(program: Program) -> tuple[NameUse, ...]:
    """Return every use of a TensorFlow name in the program, in the order of files and lines.

    A leading compat.v1 or compat.v2 is part of the name.
    """
    uses: list[NameUse] = []
    names = _tensorflow_names(program)
    for module in program.modules:
        in_module = _uses_in_module(module, guards.guarded_nodes(program), names[module.path])
        uses += sorted(in_module, key=lambda use: use.node.lineno)
    return tuple(uses)


def uses_of_names(program: Program, names: frozenset[str]) -> tuple[NameUse, ...]:
    """Return every use of one of `names` in a module that does not itself define the name.

    Callers find uses of Python 2's built-in functions, such as `xrange`, with this function. A use
    is left out if the program itself handles its failure.
    """
    guarded = guards.guarded_nodes(program)
    return tuple(
        NameUse(node.id, node)
        for module in program.modules
        for free in (names - _names_defined(module),)
        for node in module.find(ast.Name)
        if node.id in free and id(node) not in guarded
    )


def _tensorflow_names(program: Program) -> dict[str, Names]:
    """Return {path of a module: {name in the module: name in TensorFlow}}.

    Names that a module imports from other modules of the program are included.
    """
    binding = {module.path: _binding_statements(module) for module in program.modules}
    by_module: dict[str, Names] = {path: {} for path in binding}
    for _ in range(_EXPORT_DEPTH):
        before = {path: dict(names) for path, names in by_module.items()}
        for path, names in by_module.items():
            for node in binding[path]:
                bound = ((own, name) for own, name, _ in _bindings(node, names))
                for own, name in (*bound, *_indirectly_imported_names(program, node, before)):
                    # A module may give one name to several objects, for example `tf` to TensorFlow
                    # and to compat.v1. In that case compat.v1 is recorded.
                    names[own] = "compat.v1" if names.get(own) == "compat.v1" else name
        if by_module == before:
            break
    return by_module


def _binding_statements(module: ParsedFile) -> list[ast.stmt]:
    """Return the imports and assignments that may give a name to TensorFlow or a part of it.

    An example is `slim = tf.contrib.slim`.
    """
    statements = module.find(ast.Import, ast.ImportFrom, ast.Assign)
    return [
        node
        for node in statements
        if not isinstance(node, ast.Assign) or isinstance(node.value, ast.Attribute | ast.Name)
    ]


def _indirectly_imported_names(
    program: Program, node: ast.AST, by_module: dict[str, Names]
) -> Iterator[tuple[str, str]]:
    """Yield (name in the module, name in TensorFlow) for names that `node` imports indirectly.

    They are imported from other modules of the program, as in `from common import tf`.
    """
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return
    for alias in node.names:
        file, is_module = resolve_imported_name(program, node, alias)
        bound = by_module.get(file or "", {})
        given = {
            own: name
            for own, name in bound.items()
            if name in ("", "compat", "compat.v1") or _is_keras_name(name)
        }
        own = alias.asname or alias.name
        if alias.name == "*":
            yield from given.items()
        elif is_module:
            yield from ((f"{own}.{each}", name) for each, name in given.items())
        elif alias.name in given:
            yield own, given[alias.name]


def _is_keras_name(name: str) -> bool:
    return any(removed_names.is_within(name.removeprefix("compat.v1."), part) for part in _OF_KERAS)


def _uses_in_module(module: ParsedFile, guarded: frozenset[int], names: Names) -> Iterator[NameUse]:
    # {name in the module: whether only guarded code, such as a `try` with `except ImportError`,
    # defines the name}
    guarded_only: dict[str, bool] = {}
    aliased: set[int] = set()
    for node in _binding_statements(module):
        is_guarded = id(node) in guarded
        for own, _, used in _bindings(node, names):
            special = names.get(own, "") not in ("", "compat.v1")
            guarded_only[own] = guarded_only.get(own, True) and is_guarded and special
            if isinstance(node, ast.Assign):
                aliased.update(map(id, subtree(node)))
            if used:
                binds = removed_names.has_stand_in(used)
                yield NameUse(used, node, is_guarded, binds)
    covered = aliased | {id(node.value) for node in module.find(ast.Attribute)}
    others = _names_defined(module, count_imports=False, excluded_nodes=aliased)
    for expression in module.find(*_CHAINS):
        if id(expression) in covered:
            continue
        root, chain = _split_at_known_name(expression, names)
        if root in names and (chain or (names[root] and isinstance(expression.ctx, ast.Load))):
            # An attribute such as __name__ is not a part of the TensorFlow name. If tfdeploy
            # supplies a stand-in for the name, the stand-in has such attributes, so this use does
            # not fail.
            name, _, dunder = f"{names[root]}.{chain}".strip(".").partition(".__")
            binds = bool(dunder) and removed_names.has_stand_in(name)
            certain = root not in others or not names[root]
            is_guarded = id(expression) in guarded or guarded_only.get(root, False)
            yield NameUse(name, expression, is_guarded, binds, certain)


def _bindings(node: ast.AST, names: Names) -> Iterator[tuple[str, str, str]]:
    """Yield (new name, its meaning, used name) for each name that this statement defines.

    The statement is an import or an assignment. Only names for TensorFlow or a part of it count.
    The meaning is the TensorFlow name of the part, "" for TensorFlow itself. The used name is the
    TensorFlow name that the statement itself uses, or "". For example, `slim = tf.contrib.slim`
    yields ("slim", "contrib.slim", "contrib.slim"). `names`: the names that are defined so far.
    """
    match node:
        case ast.Import(aliases):
            for alias in aliases:
                top, _, part = alias.name.partition(".")
                if top == "tensorflow":
                    yield (alias.asname, part, part) if alias.asname else (top, "", part)
        case ast.ImportFrom(str(module), aliases, 0):
            top, _, part = module.partition(".")
            for alias in aliases if top == "tensorflow" else ():
                name = f"{part}.{alias.name}".strip(".") if alias.name != "*" else part
                yield alias.asname or alias.name, name, name
        case ast.Assign(targets, ast.Attribute() | ast.Name() as value):
            root, chain = _split_at_known_name(value, names)
            name = f"{names.get(root, '')}.{chain}".strip(".")
            of_contrib = name.startswith("contrib.") and (name.count(".") == 1 or not chain)
            section = root in names and (of_contrib or _is_keras_name(name))
            for own in target_names(targets) if section or "compat.v1" in (chain, name) else ():
                yield (own, name, name) if section else (own, "compat.v1", "")


def _split_at_known_name(node: ast.expr, names: Names) -> tuple[str, str]:
    """Split an expression such as common.tf.layers.dense into (a name of `names`, the rest).

    If `names` contains "common.tf", the result is ("common.tf", "layers.dense").
    """
    dotted = dotted_name(node)
    parts = dotted.split(".")
    heads = (".".join(parts[:end]) for end in range(1, len(parts)))
    head = next((each for each in heads if each in names), parts[0])
    return head, dotted[len(head) + 1 :]


def _names_defined(
    module: ParsedFile, *, count_imports: bool = True, excluded_nodes: Collection[int] = ()
) -> set[str]:
    """Return the names that a module itself defines, at any depth.

    `count_imports`: whether imported names count. `excluded_nodes`: the ids of nodes that do not
    count.
    """
    bound = {
        node.id
        for node in module.find(ast.Name)
        if not isinstance(node.ctx, ast.Load) and id(node) not in excluded_nodes
    }
    bound |= {node.arg for node in module.find(ast.arg)}
    bound |= {node.name for node in module.find(ast.FunctionDef)}
    bound |= {node.name for node in module.find(ast.ClassDef)}
    statements = module.imports if count_imports else ()
    return bound | {bound_name(alias) for node in statements for alias in node.names}
