"""Finds the installed packages that a program imports, and the imports that every run reaches.

The probe asks each host's Python whether it has these modules, and the preflight reports missing
modules. So users learn about a missing package before the program starts on the hosts.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from tfdeploy.model.job import Job
from tfdeploy.planning.source import guards, reached
from tfdeploy.planning.source.entry_point import PYTHON, program_index, python_target
from tfdeploy.planning.source.expressions import ends_program, last_name
from tfdeploy.planning.source.parsed_file import enclosing_nodes, place_of, subtree
from tfdeploy.planning.source.source import Program, imported_names

# The probe asks for these modules even if the program does not import them. tf_slim replaces parts
# of tf.contrib, so the plan for an old program depends on whether the hosts have it.
ALWAYS = ("tf_slim",)
_MAX_PROBED_MODULES = 900  # limits the number of module names in one question to a host
_CODE = (".py", ".so", ".pyd", ".pyc", ".pyx")
# The attributes of sys that decide from where modules are imported.
_IMPORT_ATTRIBUTES = ("path", "meta_path", "path_hooks")
# Packages that many programs, or TensorFlow itself, import. A file with such a name hides the
# package.
_PACKAGES = "absl google h5py keras numpy requests six tensorflow wrapt"
# Modules of Python's standard library that hardly any other module imports. A file that hides one
# of them usually does no harm.
_SELDOM_IMPORTED = "antigravity cgi chunk crypt idlelib lib2to3 pipes test this trace turtle wave"
_PROCESS_STARTERS = ("system", "call", "check_call", "check_output", "run", "Popen")
# An expression that contains only these names stands for a folder inside the code. If the program
# adds such a folder to sys.path, no further packages become importable.
_CODE_PATH_NAMES = """
    os path pardir curdir dirname abspath realpath normpath join getcwd __file__ sys str pathlib
    Path parent parents resolve insert append extend
"""


class Import(NamedTuple):
    """An imported module. `always_reached`: whether every run certainly executes the import."""

    module: str  # the first part of the module's name, such as "pandas"
    where: str  # the place of the import, such as "train.py:3"
    always_reached: bool


def modules_to_probe(job: Job, program: Program) -> tuple[str, ...]:
    """Return the names of the modules that the probe looks for on each host."""
    modules = {module for module, _, _ in unguarded_imports(program) if module.isascii()}
    word, is_module = python_target(job.command)
    started = [word.partition(".")[0]] if is_module and word.isascii() else []
    return tuple(sorted({*ALWAYS, *started, *sorted(modules)[:_MAX_PROBED_MODULES]}))


def find_imports_outside_code(
    job: Job, program: Program, files: Collection[str]
) -> tuple[Import, ...]:
    """Return the imports of modules that are not part of the code, each module once.

    `files`: the paths of the code; the path of a folder ends with a slash. Imports whose failure
    the program handles, in a `try` or after a version test, are left out. The field
    `always_reached` is False for all imports in three cases: modules may come from a folder that
    is not known here, another interpreter may run the program, or the job starts several files.
    """
    before_program = job.command[: program_index(job.command) or 0]
    if any(re.search(r"/python[^/]*\Z", word) for word in before_program):
        return ()
    own_python = bool(job.command) and job.command[0] in PYTHON and len(program.entry_files) == 1
    certain = own_python and not _may_import_from_other_folders(job, program)
    own = own_modules(files) | {"tensorflow"}
    executed = (
        reached.certainly_reached(program, has_workers=False).nodes if certain else frozenset()
    )
    outside: dict[str, Import] = {}
    for module, where, node in unguarded_imports(program):
        if module not in own:
            each = Import(module, where, id(node) in executed)
            first = outside.setdefault(module, each)
            if each.always_reached and not first.always_reached:
                outside[module] = each
    return tuple(outside.values())


def own_modules(files: Iterable[str]) -> set[str]:
    """Return the names of all folders and modules in the code, at any depth.

    All of them may be importable, because a program may add any of its folders to sys.path.
    """
    names: set[str] = set()
    for file in files:
        folder, _, name = file.rpartition("/")
        names.update(folder.split("/"))
        if name.endswith(_CODE):
            names.add(name.partition(".")[0])
    return names


def find_module_hiding_files(program: Program, files: Iterable[str]) -> dict[str, str]:
    """Return {hidden module: the file of the code that Python imports instead of it}.

    Such a file has the name of a standard module or a common package, and is in the program's
    folder, where Python searches first.
    """
    hidden: dict[str, str] = {}
    # No file can hide a built-in module, because Python searches no folder for it.
    seldom = {*_SELDOM_IMPORTED.split(), *sys.builtin_module_names}
    hideable = {*_PACKAGES.split(), *sys.stdlib_module_names} - seldom
    for path in files if program.path else ():
        module = path.removesuffix(".py").removesuffix("/__init__")
        folder, _, name = module.rpartition("/")
        if path.endswith(".py") and folder == program.import_folder and name in hideable:
            hidden[name] = path
    return hidden


def _may_import_from_other_folders(job: Job, program: Program) -> bool:
    """Return whether modules may come from folders besides the code and the installed packages."""
    given = job.env.get("PYTHONPATH", "")
    if "PYTHONPATH" in job.secrets or any(word[:1] in ("/", "~", "{") for word in given.split(":")):
        return True
    nodes = program.find(ast.Call, ast.Assign, ast.AugAssign)
    return any(map(_may_add_import_source, nodes))


def _may_add_import_source(node: ast.AST) -> bool:
    """Return whether the statement may let the program import modules from another place.

    Examples: `sys.path.append("/opt/lib")`, `sys.path[0] = "/opt/lib"`, `sys.path += folders`, a
    change of sys.meta_path, and a call that runs `pip install`.
    """
    match node:
        case ast.Call(function) if last_name(function) in _PROCESS_STARTERS:
            texts = (each.value for each in subtree(node) if isinstance(each, ast.Constant))
            return any("pip" in str(each).split() for each in texts)
        case ast.Call(function) if last_name(function) == "addsitedir":
            return True
        case ast.Call(function, values):
            changed = [function.value] if isinstance(function, ast.Attribute) else []
        case ast.Assign(changed, value):
            values = [value]
        case ast.AugAssign(target, value=value):
            changed, values = [target], [value]
    return any(map(_is_sys_path, changed)) and not all(map(_is_code_folder_expression, values))


def _is_sys_path(node: ast.expr) -> bool:
    """Return whether the expression is a list such as sys.path, or an element of it."""
    match node:
        case ast.Subscript(value):
            return _is_sys_path(value)
        case ast.Attribute(value, name):
            return name in _IMPORT_ATTRIBUTES and last_name(value) == "sys"
    return False


def _is_code_folder_expression(node: ast.AST) -> bool:
    """Return whether the expression can only stand for folders inside the code.

    Such an expression is made of __file__, the current folder and relative paths.
    """
    for each in subtree(node):
        match each:
            case ast.Constant(str(path)) if path.startswith(("/", "~")):
                return False
            case ast.Name(name) | ast.Attribute(attr=name) if name not in _CODE_PATH_NAMES.split():
                return False
    return True


def unguarded_imports(program: Program) -> Iterator[tuple[str, str, ast.AST]]:
    """Yield (module, "train.py:3", node) for every absolute import that the program needs.

    If the program itself handles the failure of an import, this import is left out.
    """
    guarded = guards.guarded_nodes(program)
    for node in program.imports:
        tries = (each for each in enclosing_nodes(node) if isinstance(each, ast.Try))
        if id(node) not in guarded or any(map(_do_all_handlers_end_program, tries)):
            yield from (
                (name.partition(".")[0], place_of(node), node) for name in imported_names(node)
            )


def _do_all_handlers_end_program(node: ast.Try) -> bool:
    """Return whether every `except` of this `try` ends the program.

    In this case the program needs the modules that the `try` imports.
    """
    return bool(node.handlers) and all(ends_program(each.body[-1]) for each in node.handlers)
