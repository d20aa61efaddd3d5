"""Which texts an expression of the program may evaluate to: a constant, a name or flag that is given one, a joined path.

Reads syntax trees.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice, product

from tfdeploy.planning.flags import flag_definitions
from tfdeploy.planning.source.expressions import last_name
from tfdeploy.planning.source.source import Program

_MOST_STEPS = 4  # the name of a name of a flag
_MOST_VALUES = 8  # that one name is given
_MOST_TEXTS = 100  # of one expression


@dataclass(frozen=True)
class Texts:
    """What the program or the command gives to names and flags."""

    names: Mapping[str, list[ast.expr]]
    flags: Mapping[str, str]

    def of(self, node: ast.expr, steps: int = _MOST_STEPS) -> set[str]:
        """Every text that the expression may evaluate to; empty where that is not known."""
        if isinstance(node, ast.Constant):
            return {node.value} if isinstance(node.value, str) else set()
        if isinstance(node, ast.Name) and steps:
            return {text for value in self.names.get(node.id, [])[:_MOST_VALUES] for text in self.of(value, steps - 1)}
        if isinstance(node, ast.Attribute):
            return {self.flags[node.attr]} if node.attr in self.flags else set()
        if isinstance(node, ast.Call) and last_name(node.func) in ("join", "Path", "abspath", "str", "fspath"):
            combined = product(*(sorted(self.of(part, steps)) for part in node.args))
            return {posixpath.join("", *words) for words in islice(combined, _MOST_TEXTS)}
        return set()


def read(command: tuple[str, ...], program: Program) -> Texts:
    names: dict[str, list[ast.expr]] = {}
    for _, node in program.find(ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                names.setdefault(target.id, []).append(node.value)
    return Texts(names, _flags(command, program))


def _flags(command: tuple[str, ...], program: Program) -> dict[str, str]:
    """The attribute of a flag -> its value in the command, else its default where that is a text."""
    definitions = flag_definitions.definitions(program)
    found = {flag.dest: flag.value_type.default for flag in definitions if flag.value_type.default}
    dests = {spelling: flag.dest for flag in definitions for spelling in flag.spellings}
    for at, word in enumerate(command):
        name, given, value = word.partition("=")
        if name.startswith("-"):
            found[dests.get(name, flag_definitions.plain(name))] = value if given else "".join(command[at + 1 : at + 2])
    return found
