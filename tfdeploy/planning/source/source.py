"""The program that a command starts, as syntax trees: the file itself and the modules of the tree that it imports.

It parses given text and imports nothing. A file that cannot be parsed is a note, no error.
"""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar, cast

from tfdeploy.planning.source import python2

PYTHON = ("python", "python3")  # as the first word: the job's interpreter
SHELLS = ("bash", "sh", "dash", "zsh", "ksh", "csh", "tcsh", "fish")
Node = TypeVar("Node", bound=ast.AST)
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


class Unparsed(NamedTuple):
    """A file that this machine's Python cannot parse, and that is not Python 2."""

    where: str  # "train.py:3"
    said: str  # "invalid syntax"
    certain: bool  # the program itself, whole: what imports it may take its failure into account


@dataclass(frozen=True)
class Program:
    """Where `path` is None or `trees` is empty, `unread` says why."""

    path: str | None
    trees: tuple[ast.Module, ...] = ()  # the program first, then what it imports
    unread: str | None = None
    script: str | None = None  # the script that the command's shell runs
    paths: tuple[str, ...] = ()  # the file of each tree
    unparsed: tuple[Unparsed, ...] = ()
    python2: tuple[tuple[str, str], ...] = ()  # ("train.py:3", "the print statement"): what Python 3 cannot read
    roots: tuple[str, ...] = ()  # the files that the command may start: one, or one for each kind of task
    base: str = ""  # the folder that imports start from

    @cached_property
    def modules(self) -> dict[str, ast.Module]:
        """Path -> tree."""
        return dict(zip(self.paths, self.trees, strict=True))

    @cached_property
    def by_path(self) -> dict[str, tuple[ast.AST, ...]]:
        """Path -> all nodes of the tree, in the order of ast.walk."""
        return {path: _nodes_of(tree) for path, tree in self.modules.items()}

    @cached_property
    def nodes(self) -> tuple[tuple[str, ast.AST], ...]:
        """(path, node) of every node of its modules."""
        return tuple((path, node) for path, nodes in self.by_path.items() for node in nodes)

    def find(self, kind: type[Node]) -> Iterator[tuple[str, Node]]:
        """(path, node) of every node of this class."""
        for path, tree in self.modules.items():
            yield from ((path, cast("Node", node)) for node in _nodes_by_class(tree).get(kind, ()))

    def uses(self, *names: str) -> bool:
        """Whether it uses one of these names, alone or as the last one of `a.b.name`."""
        attributes = any(node.attr in names for _, node in self.find(ast.Attribute))
        return attributes or any(node.id in names for _, node in self.find(ast.Name))

    def has_text(self, text: str) -> bool:
        """Whether it has this text as a constant."""
        return any(node.value == text for _, node in self.find(ast.Constant))

    @cached_property
    def files(self) -> frozenset[str]:
        """The paths of its modules, with those that do not parse."""
        broken = [*self.python2, *(file[:2] for file in self.unparsed)]
        return frozenset((*self.paths, *(where.rpartition(":")[0] for where, _ in broken)))

    @property
    def imports_tensorflow(self) -> bool:
        return any(_imports_tensorflow(tree) for tree in self.trees)


def read(command: tuple[str, ...], sources: Mapping[str, str], cwd: str = "") -> Program:
    """The program of the command: its first *.py word, or the module after -m. `cwd`: the folder that it starts in."""
    named = _named(command, sources, cwd)
    if named is None:
        unread = f"`{command[0]}` starts the program" if command else "there is no command"
        return Program(None, unread=unread, script=_script(command, cwd))
    path, base = named
    files = _one_per_task(path, sources) if "{" in path else [path] if path in sources else []
    if not files:
        return Program(path, unread=f"{path} is not among the Python files of the code")
    trees: dict[str, ast.Module] = {}
    python2_found: list[tuple[str, str]] = []
    unparsed: list[Unparsed] = []
    for file in files:
        try:
            trees[file] = _parse(file, sources[file])
        except (SyntaxError, ValueError) as error:
            return Program(
                path,
                unread=_unreadable(file, error),
                unparsed=_unparsed(file, sources[file], error, certain=True),
                python2=_python2(file, sources[file], error),
            )
        for found, why in _follow(file, base, sources, trees).items():
            python2_found += _python2(found, sources[found], why)
            unparsed += _unparsed(found, sources[found], why, certain=False)
    return Program(
        path,
        tuple(trees.values()),
        paths=tuple(trees),
        roots=tuple(files),
        base=base,
        unparsed=tuple(dict.fromkeys(unparsed)),
        python2=tuple(dict.fromkeys(python2_found)),
    )


def merged(programs: Sequence[Program]) -> Program:
    """Several programs as one, with the first one's path: where it cannot be read, neither can the whole."""
    first = programs[0]
    if len(programs) == 1:
        return first
    modules = {path: tree for program in programs for path, tree in program.modules.items()}
    return replace(
        first,
        trees=tuple(modules.values()),
        paths=tuple(modules),
        roots=tuple(dict.fromkeys(root for program in programs for root in program.roots)),
        unparsed=tuple(dict.fromkeys(file for program in programs for file in program.unparsed)),
        python2=tuple(dict.fromkeys(place for program in programs for place in program.python2)),
    )


def imported_files(program: Program, path: str, node: ast.stmt) -> Iterator[str]:
    """The files of the program that this import statement of `path` runs."""
    return _files_of(node, path, program.base, program.files)


def main_block(node: ast.stmt) -> bool:
    """True for `if __name__ == "__main__":`, which only the program itself runs."""
    if not (isinstance(node, ast.If) and isinstance(node.test, ast.Compare)):
        return False
    return isinstance(node.test.left, ast.Name) and node.test.left.id == "__name__"


def own_end(command: tuple[str, ...]) -> int:
    """Where the program's own flags end: at the first `--` behind its word, else at the end."""
    at = program_index(command)
    return len(command) if at is None or "--" not in command[at:] else command.index("--", at)


def _named(command: tuple[str, ...], sources: Mapping[str, str], cwd: str) -> tuple[str, str] | None:
    """(path of the program, folder that its imports start from)."""
    at = program_index(command)
    if at is None:
        return None
    if not command[at].endswith(".py"):
        return _module_path(command[at], sources, cwd), cwd
    path = posixpath.normpath(posixpath.join(cwd, command[at]))
    return path, posixpath.dirname(path)


def program_index(command: tuple[str, ...]) -> int | None:
    """The place of the program in the command: its first *.py word, or the module after -m."""
    if not command or posixpath.basename(command[0]) in SHELLS:
        return None
    for at, (before, word) in enumerate(pairwise(("", *command[1:])), 1):
        if before in _WITH_VALUE:
            continue
        if word == "-c":
            return None
        if word.endswith(".py") or before == "-m":
            return at
    return 0 if command[0].endswith(".py") else None


def _one_per_task(path: str, sources: Mapping[str, str]) -> list[str]:
    """The files that `{job_name}{task_index}.py` may be."""
    pattern = re.compile("[^/]*".join(re.escape(part) for part in re.split(r"\{\w+\}", path)))
    return sorted(file for file in sources if pattern.fullmatch(file))


def _script(command: tuple[str, ...], cwd: str) -> str | None:
    shell = command and posixpath.basename(command[0]) in SHELLS
    plain = len(command) > 1 and not command[1].startswith("-")
    return posixpath.normpath(posixpath.join(cwd, command[1])) if shell and plain else None


def _module_path(module: str, sources: Mapping[str, str], cwd: str) -> str:
    path = posixpath.join(cwd, module.replace(".", "/"))
    return f"{path}/__main__.py" if f"{path}/__main__.py" in sources else f"{path}.py"


@lru_cache(maxsize=1024)
def _parse(_path: str, text: str) -> ast.Module:
    """The tree of one file. Cached: the shipment, the plan and each role's command read the same files, and nothing changes
    a tree. Equal files have a tree each, since nodes are told apart by their ids."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes in the user's strings
        return ast.parse(text.removeprefix("\ufeff"))


@lru_cache(maxsize=1024)
def _nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


@lru_cache(maxsize=1024)
def _nodes_by_class(tree: ast.Module) -> dict[type[ast.AST], list[ast.AST]]:
    found: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
    for node in _nodes_of(tree):
        found[type(node)].append(node)
    return dict(found)


def _unreadable(path: str, error: SyntaxError | ValueError) -> str:
    line = getattr(error, "lineno", None)
    where = f"{path}:{line}" if line else path
    said = getattr(error, "msg", None) or str(error)
    hint = "a Python 2 program? " if "print" in said or "exec" in said or "except" in said else ""
    return f"{where} cannot be read ({hint}{said.rstrip('.')})"


def _follow(path: str, base: str, sources: Mapping[str, str], trees: dict[str, ast.Module]) -> dict[str, Exception]:
    """Adds every module of the tree that `path` imports, but for those that cannot be parsed; returns these with their errors."""
    waiting, broken = [path], dict[str, Exception]()
    while waiting:
        current = waiting.pop(0)
        for found in _imported(current, trees[current], base, sources):
            if found in trees or found in broken:
                continue
            try:
                trees[found] = _parse(found, sources[found])
            except (SyntaxError, ValueError) as error:
                broken[found] = error
                continue
            waiting.append(found)
    return broken


def _python2(path: str, text: str, error: Exception) -> tuple[tuple[str, str], ...]:
    syntax = python2.python2_syntax(text, error) if isinstance(error, SyntaxError) else None
    return () if syntax is None else ((f"{path}:{getattr(error, 'lineno', None) or 1}", syntax),)


def _unparsed(path: str, text: str, error: Exception, *, certain: bool) -> tuple[Unparsed, ...]:
    if not isinstance(error, SyntaxError) or _python2(path, text, error):
        return ()
    whole = "\ufffd" not in text  # else it is not UTF-8, and Python may read it by its coding line
    return (Unparsed(f"{path}:{error.lineno or 1}", error.msg.rstrip("."), certain and whole),)


def _imported(path: str, tree: ast.Module, base: str, sources: Mapping[str, str]) -> Iterator[str]:
    by_class = _nodes_by_class(tree)
    for node in (*by_class.get(ast.Import, ()), *by_class.get(ast.ImportFrom, ())):
        yield from _files_of(node, path, base, sources)


def _files_of(node: ast.AST, path: str, base: str, sources: Container[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _files(base, alias.name, sources)
    elif isinstance(node, ast.ImportFrom):
        folder, module = base, node.module or ""
        if node.level:
            folder = posixpath.dirname(path)
            for _ in range(node.level - 1):
                folder = posixpath.dirname(folder)
        yield from _files(folder, module, sources)
        for alias in node.names:
            yield from _files(folder, f"{module}.{alias.name}".strip("."), sources)


def _files(folder: str, module: str, sources: Container[str]) -> Iterator[str]:
    """The files that importing a.b.c from `folder` runs: a/__init__.py, a/b/__init__.py, a/b/c.py."""
    parts = module.split(".") if module else []
    for end in range(1, len(parts) + 1):
        stem = posixpath.join(folder, *parts[:end])
        for candidate in (f"{stem}/__init__.py", f"{stem}.py"):
            if candidate in sources:
                yield candidate
                break


@lru_cache(maxsize=1024)
def _imports_tensorflow(tree: ast.Module) -> bool:
    """True when it does so outside a `try`, whose program may run without it."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "tensorflow" for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "tensorflow":
            return True
        guarded = node.body if isinstance(node, ast.Try) and node.handlers else []
        waiting.extend(child for child in ast.iter_child_nodes(node) if child not in guarded)
    return False
