"""Reads the program that a command starts: its file and the modules of the code that it imports.

The files are only parsed, never imported. If a file cannot be parsed, no error is raised here, but
the result describes the problem.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from tfdeploy.planning.source import entry_point, python2, shell_scripts
from tfdeploy.planning.source.entry_point import Command
from tfdeploy.planning.source.expressions import last_name
from tfdeploy.planning.source.parsed_file import Node, ParsedFile, enclosing_nodes, file_of, parse
from tfdeploy.planning.source.shell_scripts import ScriptLine


class Unparsed(NamedTuple):
    """A file that the Python on this machine cannot parse although it is not Python 2 code."""

    where: str  # the place of the error, such as "train.py:3"
    error: str  # the error, such as "invalid syntax"
    # Whether the program certainly cannot run. This is true only for the file that the command
    # starts, and only if the file is valid UTF-8. Otherwise the program may run: for example, the
    # program may catch the failed import of a module.
    is_certain: bool


@dataclass(frozen=True)
class Program:
    """The parsed files of a program.

    `unread_reason`: why `path` is None or `modules` is empty. It is None if the program was read.
    """

    path: str | None
    # The file that the command starts comes first, then the modules that this file imports.
    modules: tuple[ParsedFile, ...] = ()
    unread_reason: str | None = None
    script: str | None = None  # "train.sh" if the command is `bash train.sh`
    # The line of `script` that starts the program; None if no such line was found.
    script_line: ScriptLine | None = None
    unparsed: tuple[Unparsed, ...] = ()
    # Places with Python 2 syntax, such as ("train.py:3", "the print statement").
    python2: tuple[tuple[str, str], ...] = ()
    # The files that the commands can start: several if the program's path contains a placeholder,
    # as in `{job_name}.py`, or if roles have commands of their own (`merge_programs`).
    entry_files: tuple[str, ...] = ()
    import_folder: str = ""  # the folder in which imports are looked up

    @cached_property
    def by_path(self) -> dict[str, ParsedFile]:
        return {module.path: module for module in self.modules}

    @property
    def text(self) -> str:
        """Return the text of all modules, without comments."""
        return "\n".join(module.text for module in self.modules)

    def find(self, *kinds: type[Node]) -> Iterator[Node]:
        """Yield every node of these classes, in the order of files and lines."""
        for module in self.modules:
            yield from module.find(*kinds)

    @cached_property
    def imports(self) -> tuple[ast.Import | ast.ImportFrom, ...]:
        """Return every import statement."""
        return tuple(node for module in self.modules for node in module.imports)

    def uses_any_name(self, *names: str) -> bool:
        """Return whether the program uses one of these names, as in `name` or `a.b.name`."""
        kinds = (ast.Attribute, ast.Name)
        return any(last_name(node) in names for kind in kinds for node in self.find(kind))

    def has_string_constant(self, text: str) -> bool:
        """Return whether the program contains a string constant that equals this text."""
        return any(node.value == text for node in self.find(ast.Constant))

    @cached_property
    def files(self) -> frozenset[str]:
        """Return the paths of the program's modules, including those that cannot be parsed."""
        broken = [*self.python2, *(file[:2] for file in self.unparsed)]
        return frozenset((*self.by_path, *(where.rpartition(":")[0] for where, _ in broken)))

    def imports_any(self, *packages: str) -> bool:
        """Return whether the program imports one of these packages, or a module in it."""
        names = (name for node in self.imports for name in imported_names(node))
        return any(name.split(".")[0] in packages for name in names)

    @cached_property
    def imports_tensorflow(self) -> bool:
        """Return whether the program imports TensorFlow outside a `try`.

        A program that imports TensorFlow in a `try` may run without TensorFlow.
        """
        return any(
            name.split(".")[0] == "tensorflow" and not _is_in_try_body(node)
            for node in self.imports
            for name in imported_names(node)
        )


def read_program(command: Command, sources: Mapping[str, str], cwd: str = "") -> Program:
    """Return the program that the command starts, parsed with the modules that it imports.

    The program is the first word that ends with .py, or the module after -m; or, if the command
    starts a shell script, the program that the script starts. `sources`: {path in the code: text}.
    `cwd`: the folder in which the command starts.
    """
    named = entry_point.program_file(command, sources, cwd)
    if named is None:
        script = shell_scripts.shell_script(command, cwd)
        line = (
            shell_scripts.find_script_line(script, sources.get(script, ""), cwd) if script else None
        )
        started = read_program(line.words, sources, line.cwd) if line else None
        if started is not None and started.modules:
            return replace(started, script=script, script_line=line)
        unread = f"`{command[0]}` starts the program" if command else "there is no command"
        return Program(None, unread_reason=unread, script=script)
    path, base = named
    is_template = "{" in path
    roots = (
        entry_point.files_of_template(path, sources) if is_template else [path] * (path in sources)
    )
    if not roots:
        return Program(path, unread_reason=f"{path} is not among the Python files of the code")
    modules: dict[str, ParsedFile] = {}
    broken: dict[str, SyntaxError | ValueError] = {}
    for root in roots:
        _add_with_imports(root, base, sources, modules, broken)
        if root in broken:
            return _with_parse_errors(Program(path), {root: broken[root]}, sources)
    program = Program(path, tuple(modules.values()), entry_files=tuple(roots), import_folder=base)
    return _with_parse_errors(program, broken, sources)


def merge_programs(programs: Sequence[Program]) -> Program:
    """Return one program with the files of all these programs, and the path of the first program.

    If the first program could not be read, `unread_reason` of the result says why.
    """
    first = programs[0]
    if len(programs) == 1:
        return first
    modules = {module.path: module for program in programs for module in program.modules}
    joined: dict[str, Any] = {
        field: tuple(
            dict.fromkeys(each for program in programs for each in getattr(program, field))
        )
        for field in ("entry_files", "unparsed", "python2")
    }
    return replace(first, modules=tuple(modules.values()), **joined)


def imported_files(program: Program, path: str, node: ast.AST) -> Iterator[str]:
    """Yield the files of the program that are executed for this import statement of the file
    `path`."""
    return _files_imported_by(
        node, getattr(node, "names", []), path, program.import_folder, program.files
    )


def resolve_imported_name(
    program: Program, node: ast.Import | ast.ImportFrom, alias: ast.alias
) -> tuple[str | None, bool]:
    """Return the file from which an import statement takes one of its names.

    The result is (path of the file, whether the name stands for the module in this file). The path
    is None for a module outside the code.
    """
    base, files, path = program.import_folder, program.files, file_of(node).path
    of_name = list(_files_imported_by(node, [alias], path, base, files))
    around = list(_files_imported_by(node, [], path, base, files))
    # For `from a import b`, `around` lists the files of `a`. `of_name` lists these files twice, for
    # `a` and for `a.b`. If `b` is a module, `of_name` also lists the file of `b`, and so is more
    # than twice as long as `around`.
    return (of_name[-1] if of_name else None), len(of_name) > 2 * len(around)


def imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the full names of the modules that the statement imports; [] for a relative import.

    Example: ["a.b"] for `import a.b` and for `from a.b import c`.
    """
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if node.module and not node.level else []


def is_main_block(node: ast.stmt) -> bool:
    """Return whether the statement is `if __name__ == "__main__":`.

    Its body runs only in the file that the command starts.
    """
    match node:
        case ast.If(ast.Compare(ast.Name("__name__"))):
            return True
    return False


def _add_with_imports(
    first_file: str,
    import_folder: str,
    sources: Mapping[str, str],
    modules: dict[str, ParsedFile],
    broken: dict[str, SyntaxError | ValueError],
) -> None:
    """Add the file `first_file`, and all modules of the code that it imports, to `modules`.

    A file that cannot be parsed is added to `broken` instead, with its error.
    """
    waiting = [first_file]
    for path in waiting:
        if path in modules or path in broken:
            continue
        try:
            modules[path] = parse(path, sources[path])
        except (SyntaxError, ValueError) as error:
            broken[path] = error
            continue
        for node in modules[path].imports:
            waiting += _files_imported_by(node, node.names, path, import_folder, sources)


def _with_parse_errors(
    program: Program, broken: Mapping[str, SyntaxError | ValueError], sources: Mapping[str, str]
) -> Program:
    """Return the program with descriptions of its files that could not be parsed.

    A file with a SyntaxError is listed in `python2` if it contains Python 2 syntax, otherwise in
    `unparsed`. A program without modules gets an `unread_reason`, because the file that the command
    starts is then among the files that could not be parsed.
    """
    unparsed: list[Unparsed] = []
    old: list[tuple[str, str]] = []
    unread = None
    for path, error in broken.items():
        where, message, hint = path, str(error), ""
        if isinstance(error, SyntaxError):
            where, message = f"{path}:{error.lineno or 1}", error.msg.rstrip(".")
            if syntax := python2.python2_syntax(sources[path], error):
                old.append((where, syntax))
                hint = "a Python 2 program? "
            else:
                # The text contains replacement characters if the file is not UTF-8. Python may
                # parse such a file, because its first lines may name another encoding.
                certain = not program.modules and "\ufffd" not in sources[path]
                unparsed.append(Unparsed(where, message, certain))
        if not program.modules:
            unread = f"{where} cannot be read ({hint}{message})"
    return replace(program, unread_reason=unread, unparsed=tuple(unparsed), python2=tuple(old))


def _files_imported_by(
    node: ast.AST, names: list[ast.alias], path: str, base: str, sources: Container[str]
) -> Iterator[str]:
    """Yield the files that are executed if the file `path` imports these names."""
    match node:
        case ast.Import():
            for alias in names:
                yield from _module_files(base, alias.name, sources)
        case ast.ImportFrom(module, level=level):
            folder = "/".join(path.split("/")[:-level]) if level else base
            yield from _module_files(folder, module or "", sources)
            for alias in names:
                yield from _module_files(folder, f"{module or ''}.{alias.name}".strip("."), sources)


def _module_files(folder: str, module: str, sources: Container[str]) -> Iterator[str]:
    """Yield the files that Python executes to import a module that it looks up in `folder`.

    For the module a.b.c, they are a/__init__.py, a/b/__init__.py and a/b/c.py.
    """
    parts = module.split(".") if module else []
    for end in range(1, len(parts) + 1):
        stem = posixpath.join(folder, *parts[:end])
        candidates = (f"{stem}/__init__.py", f"{stem}.py")
        yield from [each for each in candidates if each in sources][:1]


def _is_in_try_body(node: ast.AST) -> bool:
    """Return whether the node is in the body of a `try` that has an `except`."""
    return any(
        isinstance(outer, ast.Try) and outer.handlers and inner in outer.body
        for inner, outer in pairwise((node, *enclosing_nodes(node)))
    )
