"""Holds the syntax tree of one file of a program, and indexes that make queries on it fast."""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import TypeVar, cast

Node = TypeVar("Node", bound=ast.AST)
_IMPORTS: tuple[type[ast.Import | ast.ImportFrom], ...] = (ast.Import, ast.ImportFrom)
# ast.parse makes only one object of each of these classes and uses it in many places of a tree. The
# object has no single parent, so `ParsedFile.nodes` leaves it out.
_SHARED = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)


class ParsedFile:
    """A Python file with its syntax tree.

    `text`: the text of the file, without comments. `nodes`: every node, in the order of the text, a
    parent before its children. Contexts (such as ast.Load) and operators are left out. Each node
    gets three further attributes: `file`, the node `parent` that contains it (None for the module),
    and its `position` in `nodes`.
    """

    def __init__(self, path: str, tree: ast.Module, text: str) -> None:
        self.path, self.tree, self.text = path, tree, text
        self.nodes: list[ast.AST] = []
        waiting: list[tuple[ast.AST, ast.AST | None]] = [(tree, None)]
        while waiting:
            node, parent = waiting.pop()
            vars(node).update(file=self, parent=parent, position=len(self.nodes))
            self.nodes.append(node)
            waiting += [(child, node) for child in reversed(child_nodes(node))]

    def find(self, *kinds: type[Node]) -> Sequence[Node]:
        """Return every node of these classes, in the order of the text."""
        lists = [self._by_class[kind] for kind in kinds if kind in self._by_class]
        nodes = lists[0] if len(lists) == 1 else sorted(chain(*lists), key=_position)
        return cast("list[Node]", nodes)

    @cached_property
    def imports(self) -> Sequence[ast.Import | ast.ImportFrom]:
        return self.find(*_IMPORTS)

    @cached_property
    def _by_class(self) -> dict[type[ast.AST], list[ast.AST]]:
        by_class: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        for node in self.nodes:
            by_class[type(node)].append(node)
        return dict(by_class)

    @cached_property
    def subtree_sizes(self) -> list[int]:
        """Return for each node the number of nodes in its subtree, including the node itself."""
        subtree_sizes = [1] * len(self.nodes)
        for node in reversed(self.nodes[1:]):
            subtree_sizes[_position(vars(node)["parent"])] += subtree_sizes[_position(node)]
        return subtree_sizes


@lru_cache(maxsize=1024)
def parse(path: str, text: str) -> ParsedFile:
    """Return the parsed file. Raises what `ast.parse` raises.

    The result is cached, because one launch reads the same file several times. Callers must not
    modify the tree. Two files with equal text get separate trees, because nodes are identified by
    `id`.
    """
    with warnings.catch_warnings():
        # Python would print a warning about each invalid escape in the user's strings.
        warnings.simplefilter("ignore")
        return ParsedFile(path, parse_text(text), re.sub("#.*", "", text))


_EXCEPT_WITH_COMMA = re.compile(r"\bexcept\s[^(:]*,")


def parse_text(text: str) -> ast.Module:
    """Parse the text as Python 3.13 does. Raises what `ast.parse` raises.

    Python 3.14 also accepts `except A, e:`, but in a program of Python 2 this has another meaning.
    """
    text = text.removeprefix("\ufeff")
    tree = ast.parse(text)
    for node in ast.walk(tree) if _EXCEPT_WITH_COMMA.search(text) else ():
        if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Tuple):
            line = text.split("\n")[node.type.lineno - 1]
            if line.encode()[node.type.col_offset : node.type.col_offset + 1] != b"(":
                problem = "multiple exception types must be parenthesized"
                raise SyntaxError(problem, ("", node.type.lineno, node.type.col_offset + 1, line))
    return tree


def file_of(node: ast.AST) -> ParsedFile:
    """Return the file that contains the node."""
    return cast("ParsedFile", vars(node)["file"])


def place_of(node: ast.stmt | ast.expr) -> str:
    """Return the place of a statement or expression, such as "train.py:12"."""
    return f"{file_of(node).path}:{node.lineno}"


def subtree(node: ast.AST) -> list[ast.AST]:
    """Return the node and every node inside it."""
    file, at = file_of(node), _position(node)
    return file.nodes[at : at + file.subtree_sizes[at]]


def enclosing_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that contain this node, innermost first."""
    while node := vars(node)["parent"]:
        yield node


def _position(node: ast.AST) -> int:
    return cast("int", vars(node)["position"])


def child_nodes(node: ast.AST) -> list[ast.AST]:
    """Return the direct children of the node, in the order of the text.

    Contexts (such as ast.Load) and operators are left out.
    """
    nodes: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            nodes += [
                each
                for each in value
                if isinstance(each, ast.AST) and not isinstance(each, _SHARED)
            ]
        elif isinstance(value, ast.AST) and not isinstance(value, _SHARED):
            nodes.append(value)
    return nodes
