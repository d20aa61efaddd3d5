"""The names that a tree of tfdeploy writes and reads, from its syntax trees: keys, words, codes,
files, environment.

A key, word or code is *found* only where its place says so (`row["host"]`, `outcome == "lost"`,
`VerbError("disk", ...)`); it is *still there* wherever a text, a field or an argument of that name
is. So a move into a record, a TypedDict or a constant loses nothing, and a name that is gone from
one of the two sides is seen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

HOST_SIDE = ("agent", "runtime")
_KEY = re.compile(r"[a-z][a-z0-9_]*\Z")
_WORD = re.compile(r"[a-z][a-z0-9_. -]{1,30}\Z")
_ENVIRONMENT = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+_?\Z")
_STEP = re.compile(r"[\w.%-]*[a-z][\w.%-]*\Z")
_THERE = re.compile(r"(?=.*[A-Za-z])[\w.% -]{1,40}\Z")
_FILE = re.compile(r"(?=.*[a-z])[\w.%-]*\.[a-z][\w.%-]*\Z")
_RAISERS = ("VerbError", "fail")  # both take the code first


class Source:
    """One module. `side`: host or control."""

    def __init__(self, path: Path, package: Path) -> None:
        self.name = path.relative_to(package).with_suffix("").as_posix()
        self.side = "host" if self.name.split("/")[0] in HOST_SIDE else "control"
        self.text = path.read_text(encoding="utf-8")
        self.nodes = list(_with_programs(ast.parse(self.text)))
        described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        self.docstrings = {
            id(node.body[0].value)
            for node in self.nodes
            if isinstance(node, described) and _described(node)
        }  # type: ignore[attr-defined]

    def texts(self) -> Iterator[str]:
        """Every literal but docstrings."""
        for node in self.nodes:
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in self.docstrings
            ):
                yield node.value


def _described(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = node.body[0] if node.body else None
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


def _with_programs(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes, and those of programs that stand in it as texts."""
    for node in ast.walk(tree):
        yield node
        text = node.value if isinstance(node, ast.Constant) else ""
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        if isinstance(text, str) and "\ndef " in text:
            with suppress(SyntaxError):
                yield from ast.walk(ast.parse(text))


def _text(node: ast.AST | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        for each in node.elts:
            yield from _text(each)
    elif isinstance(node, ast.IfExp):
        yield from _text(node.body)
        yield from _text(node.orelse)


def keys_of(node: ast.AST) -> Iterator[str]:
    """Of dicts: written, read, asked for."""
    if isinstance(node, ast.Dict):
        for key in node.keys:
            yield from _text(key)
    elif isinstance(node, ast.Subscript):
        yield from _text(node.slice)
    elif isinstance(node, ast.Call):
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if name in ("get", "pop", "setdefault") and node.args:
            yield from _text(node.args[0])
        if name in ("dict", "update"):
            yield from (each.arg for each in node.keywords if each.arg)
    elif isinstance(node, ast.Compare) and any(
        isinstance(op, (ast.In, ast.NotIn)) for op in node.ops
    ):
        yield from _text(node.left)


def words_of(node: ast.AST) -> Iterator[str]:
    """What a value is compared with, or may be."""
    if isinstance(node, ast.Compare) and isinstance(
        node.ops[0], (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
    ):
        for each in node.comparators:
            yield from _text(each)
    elif isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal":
        yield from _text(node.slice)
    elif (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id.isupper()
    ):
        yield from _text(node.value)


def codes_of(node: ast.AST, constants: dict[str, str]) -> Iterator[str]:
    """Of the errors of verbs and of the first stage."""
    if isinstance(node, ast.Call):
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if name in _RAISERS and node.args:
            yield from _code(node.args[0], constants)
        for each in node.keywords:
            if each.arg == "code" and name != "exec":
                yield from _code(each.value, constants)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if "code" in _text(key):
                yield from _code(value, constants)
            elif (
                isinstance(key, ast.Attribute)
                and getattr(key.value, "id", "") == "errno"
                and isinstance(value, ast.Tuple)
            ):
                yield from _code(value.elts[0], constants)


def _code(node: ast.AST, constants: dict[str, str]) -> Iterator[str]:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    yield from [constants[name]] if name in constants else _text(node)


def files_of(node: ast.AST) -> Iterator[str]:
    """What is joined to a path, or is asked of a run's folder, and texts that look like a file's
    name."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("join", "file"):
        named = (each for arg in node.args for each in ast.walk(arg))
        yield from (
            step
            for each in named
            for text in _text(each)
            for step in text.split("/")
            if _STEP.match(step)
        )
    if isinstance(node, ast.Constant):
        yield from (step for text in _text(node) for step in text.split("/") if _FILE.match(step))


def variables_of(source: Source) -> Iterator[str]:
    """What looks like a variable of the environment, and is no name of the program's own."""
    own = {node.id for node in source.nodes if isinstance(node, ast.Name)}
    exported = {
        text
        for node in source.nodes
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        for text in _text(node.value)
    }
    yield from (
        text for text in source.texts() if _ENVIRONMENT.match(text) and text not in own | exported
    )


def still_there(source: Source) -> Iterator[str]:
    """Every name that may be a key, a word or a code of that module."""
    for node in source.nodes:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "split"
        ):
            yield from (name for text in _text(node.func.value) for name in text.split())
    yield from source.texts()


def sources(tree: Path) -> list[Source]:
    package = tree / "tfdeploy"
    return [
        Source(path, package)
        for path in sorted(package.rglob("*.py"))
        if "supplied" not in path.parts
    ]


def collect(tree: Path, verbs: set[str]) -> dict[str, list[str]]:
    """`tree` holds `tfdeploy/`. `verbs`: of the agent, which look like file names and are none."""
    found = sources(tree)
    modules = {tail for source in found for tail in _tails(source.name)}
    host = [source for source in found if source.side == "host"]
    constants = dict(pair for source in host for node in source.nodes for pair in _constant(node))
    names: dict[str, set[str]] = {
        "TFDEPLOY names": {
            name for source in found for name in re.findall(r"TFDEPLOY_[A-Z_]+", source.text)
        },
        "environment": {name for source in found for name in variables_of(source)},
    }
    raising = [source for source in found if source.name.startswith(("agent", "transport"))]
    names["error codes"] = {
        code
        for source in raising
        for node in source.nodes
        for code in codes_of(node, constants)
        if code
    }
    writing = [
        source for source in found if source.name.startswith(("agent", "store", "transport"))
    ]
    files = {
        name
        for source in writing
        for node in source.nodes
        if id(node) not in source.docstrings
        for name in files_of(node)
    }
    names["file names"] = {
        name for name in files - verbs - modules if not name.startswith("tfdeploy.")
    }
    for side in ("host", "control"):
        nodes = [node for source in found if source.side == side for node in source.nodes]
        names[f"keys, {side} side"] = {
            key for node in nodes for key in keys_of(node) if _KEY.match(key)
        }
        names[f"words, {side} side"] = {
            word for node in nodes for word in words_of(node) if _WORD.match(word)
        }
        there = {name for source in found if source.side == side for name in still_there(source)}
        names[f"there, {side} side"] = {
            step for name in there for step in name.split("/") if _THERE.match(step)
        }
    return {kind: sorted(each) for kind, each in names.items()}


def _tails(name: str) -> Iterator[str]:
    """agent/serve/release -> tfdeploy.agent.serve.release.verbs, agent.serve.release,
    serve.release, release."""
    steps = ["tfdeploy", *name.split("/")]
    yield from (
        end
        for at in range(len(steps))
        for end in (".".join(steps[at:]), ".".join(steps[at:]) + ".")
    )


def _constant(node: ast.AST) -> Iterator[tuple[str, str]]:
    if (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id.isupper()
    ):
        yield from (
            (node.targets[0].id, text)
            for text in _text(node.value)
            if isinstance(node.value, ast.Constant)
        )
