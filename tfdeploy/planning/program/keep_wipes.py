"""Finds where a program deletes or renames one of its `keep` folders, in its syntax trees, for a note of the plan.

In a task's working directory that folder is a link. What the program puts in its place is taken into `keep` when the task
ends (agent/run/keep_links.py), and what earlier runs saved is set aside: training then starts from zero.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator

from tfdeploy.model.job import Job
from tfdeploy.planning.program import texts
from tfdeploy.planning.source.expressions import last_name, text
from tfdeploy.planning.source.source import Program

_BY_MODULE = {
    "os": ("rename", "renames", "replace", "unlink", "remove", "rmdir"),
    "shutil": ("rmtree", "move"),
    "gfile": ("DeleteRecursively", "Rename", "Remove", "rmtree", "rename", "remove"),
}
_BY_NAME = ("rmtree", "DeleteRecursively")  # after `from shutil import rmtree`
_OF_PATH = ("rename", "replace", "unlink", "rmdir")
_STARTS = ("system", "call", "check_call", "check_output", "run", "Popen")
_SHELL = ("rm", "mv")


def notes(job: Job, program: Program) -> tuple[str, ...]:
    """One note for each place."""
    if not job.keep:
        return ()
    values = texts.read(job.command, program)
    calls = ((path, node) for path, node in program.find(ast.Call))
    found = (_note(f"{path}:{call.lineno}", wiped) for path, call in calls if (wiped := _wiped(call, values, job)))
    return tuple(dict.fromkeys(found))


def _note(where: str, path: str) -> str:
    return (
        f"{where} deletes or renames the `keep` folder {path}: what the program puts in its place is kept instead, "
        "what earlier runs saved is set aside, and a task that starts again does the same"
    )


def _wiped(call: ast.Call, values: texts.Texts, job: Job) -> str | None:
    """The `keep` path that this call deletes or renames, or whose parent it does."""
    found = (text for node in _targets(call) for text in values.of(node) if text)
    named = {posixpath.normpath(posixpath.join(job.cwd, text)) for text in found}
    return next((path for path in job.keep if any(path == text or path.startswith(f"{text}/") for text in named)), None)


def _targets(call: ast.Call) -> Iterator[ast.expr]:
    """The expressions that name what a call deletes or renames."""
    name, function = last_name(call.func), call.func
    owner = function.value if isinstance(function, ast.Attribute) else None
    if name in _BY_MODULE.get(last_name(owner), ()) or (owner is None and name in _BY_NAME):
        yield from call.args[:1]
        yield from (word.value for word in call.keywords if word.arg in ("path", "src", "dirname"))
    elif name in _OF_PATH and isinstance(owner, ast.Call) and last_name(owner.func) == "Path":
        yield owner
    elif name in _STARTS and last_name(owner) in ("os", "subprocess"):
        yield from _of_shell(call)


def _of_shell(call: ast.Call) -> Iterator[ast.expr]:
    """The words and names in a shell command such as `rm -rf logs`, however it is composed."""
    nodes = [node for argument in call.args[:1] for node in ast.walk(argument)]
    words = [word for node in nodes if isinstance(node, ast.expr) for word in (text(node) or "").split()]
    if any(word in _SHELL for word in words):
        yield from (ast.Constant(word) for word in words if word not in _SHELL and not word.startswith("-"))
        yield from (node for node in nodes if isinstance(node, ast.Name | ast.Attribute))
