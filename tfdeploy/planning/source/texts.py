"""Which texts an expression of the program may evaluate to: a constant, a name or flag that is given one, a joined path.

Reads syntax trees.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice, product

from tfdeploy.planning.source import flag_types
from tfdeploy.planning.source.source import Program

_DEEP = 4  # name of a name of a flag
_SEVERAL = 8  # values that one name is given
_MOST_TEXTS = 100  # of one expression


@dataclass(frozen=True)
class Texts:
    """What the program or the command gives to names and flags."""

    names: Mapping[str, list[ast.expr]]
    flags: Mapping[str, str]

    def of(self, node: ast.expr, depth: int = _DEEP) -> set[str]:
        """Every text that the expression may evaluate to; empty where that is not known."""
        if isinstance(node, ast.Constant):
            return {node.value} if isinstance(node.value, str) else set()
        if isinstance(node, ast.Name) and depth:
            return {text for value in self.names.get(node.id, [])[:_SEVERAL] for text in self.of(value, depth - 1)}
        if isinstance(node, ast.Attribute):
            return {self.flags[node.attr]} if node.attr in self.flags else set()
        if isinstance(node, ast.Call) and flag_types.last_name(node.func) in ("join", "Path", "abspath", "str", "fspath"):
            combined = product(*(sorted(self.of(part, depth)) for part in node.args))
            return {posixpath.join("", *words) for words in islice(combined, _MOST_TEXTS)}
        return set()


def read(command: tuple[str, ...], program: Program) -> Texts:
    return Texts(_assigned(program), _flags(command, program))


def _assigned(program: Program) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for tree in program.trees:
        for node in ast.walk(tree):
            for target in node.targets if isinstance(node, ast.Assign) else []:
                if isinstance(target, ast.Name) and isinstance(node, ast.Assign):
                    found.setdefault(target.id, []).append(node.value)
    return found


def _flags(command: tuple[str, ...], program: Program) -> dict[str, str]:
    """Flag -> its value in the command, else its default."""
    found: dict[str, str] = {}
    for tree in program.trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                found.update(_default(node))
    for at, word in enumerate(command):
        name, given, value = word.partition("=")
        if name.startswith("-"):
            found[_plain(name)] = value if given else "".join(command[at + 1 : at + 2])
    return found


def _default(call: ast.Call) -> dict[str, str]:
    """Of one definition of argparse, optparse, click or absl, where it is a text."""
    name, given = flag_types.last_name(call.func), {word.arg: word.value for word in call.keywords}
    absl = name.startswith("DEFINE_")
    default = flag_types.text(
        given.get("default") or given.get("default_value") or (call.args[1] if absl and call.args[1:] else None)
    )
    spelled = [
        word for argument in call.args if (word := flag_types.text(argument)) is not None and (absl or word.startswith("-"))
    ]
    return {} if default is None else {_plain(word): default for word in (spelled[:1] if absl else spelled)}


def _plain(spelling: str) -> str:
    return spelling.lstrip("-").replace("-", "_")
