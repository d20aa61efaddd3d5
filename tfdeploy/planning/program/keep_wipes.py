"""Finds where a program deletes or renames one of its `keep` folders, in its syntax trees, for a note of the plan.

In a task's working directory that folder is a link. What the program puts in its place is taken into `keep` when the task
ends (agent/run/keep_links.py), and what earlier runs saved is set aside: training then starts from zero.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product

from tfdeploy.model.job import Job
from tfdeploy.planning.program import flag_types
from tfdeploy.planning.program.source import Program

_BY_MODULE = {
    "os": ("rename", "renames", "replace", "unlink", "remove", "rmdir"),
    "shutil": ("rmtree", "move"),
    "gfile": ("DeleteRecursively", "Rename", "Remove", "rmtree", "rename", "remove"),
}
_BY_NAME = ("rmtree", "DeleteRecursively")  # after `from shutil import rmtree`
_OF_PATH = ("rename", "replace", "unlink", "rmdir")
_STARTS = ("system", "call", "check_call", "check_output", "run", "Popen")
_SHELL = ("rm", "mv")
_DEEP = 4  # name of a name of a flag
_SEVERAL = 8  # values that one name is given
_MOST_TEXTS = 100  # of one expression


@dataclass(frozen=True)
class _Values:
    """The values that the program or the command gives to names and flags."""

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


def notes(job: Job, program: Program) -> tuple[str, ...]:
    """One note for each place."""
    if not job.keep:
        return ()
    values = _Values(_assigned(program), _flags(job.command, program))
    texts = []
    for path, tree in zip(program.paths, program.trees, strict=True):
        for node in ast.walk(tree):
            wiped = _wiped(node, values, job.keep) if isinstance(node, ast.Call) else None
            if wiped:
                texts.append(_words(f"{path}:{getattr(node, 'lineno', 1)}", wiped))
    return tuple(dict.fromkeys(texts))


def _words(where: str, path: str) -> str:
    return (
        f"{where} deletes or renames the `keep` folder {path}: what the program puts in its place is kept instead, "
        "what earlier runs saved is set aside, and a task that starts again does the same"
    )


def _wiped(call: ast.Call, values: _Values, keep: tuple[str, ...]) -> str | None:
    """The `keep` path that this call deletes or renames, itself or with a folder above it."""
    texts = {posixpath.normpath(text) for node in _targets(call) for text in values.of(node) if text}
    return next((path for path in keep if any(path == text or path.startswith(f"{text}/") for text in texts)), None)


def _targets(call: ast.Call) -> Iterator[ast.expr]:
    """The expressions that name what a call deletes or renames."""
    name, function = flag_types.last_name(call.func), call.func
    owner = function.value if isinstance(function, ast.Attribute) else None
    if name in _BY_MODULE.get(flag_types.last_name(owner), ()) or (owner is None and name in _BY_NAME):
        yield from call.args[:1]
        yield from (word.value for word in call.keywords if word.arg in ("path", "src", "dirname"))
    elif name in _OF_PATH and isinstance(owner, ast.Call) and flag_types.last_name(owner.func) == "Path":
        yield owner
    elif name in _STARTS and flag_types.last_name(owner) in ("os", "subprocess"):
        yield from _of_shell(call)


def _of_shell(call: ast.Call) -> Iterator[ast.expr]:
    """The words and names in a shell command such as `rm -rf logs`, however it is composed."""
    nodes = [node for argument in call.args[:1] for node in ast.walk(argument)]
    texts = [word for node in nodes if isinstance(node, ast.expr) for word in (flag_types.text(node) or "").split()]
    if any(word in _SHELL for word in texts):
        yield from (ast.Constant(word) for word in texts if word not in _SHELL and not word.startswith("-"))
        yield from (node for node in nodes if isinstance(node, ast.Name | ast.Attribute))


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
