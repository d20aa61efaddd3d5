"""Finds the programs in a folder, and the values for their job files: mode, checkpoints, data.

The functions get the texts of the folder's Python files, and examine their syntax trees.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tfdeploy.model.job import Mode
from tfdeploy.planning.flags import flag_definitions
from tfdeploy.planning.program.mode_signs import find_signs, likely_mode
from tfdeploy.planning.source import python2, source
from tfdeploy.planning.source.expressions import literal_text
from tfdeploy.planning.source.source import Program, is_main_block

_USUAL_NAMES = ("train", "main", "run")
_NO_PROGRAMS = ("setup", "conftest", "__init__")
# A program whose name contains one of these texts uses a model after the training.
_LATER_NAMES = ("eval", "test", "predict", "infer", "sample", "generate", "export", "serve")
_CHECKPOINT_NAMES = """
    checkpoint_dir checkpoints checkpoint ckpt_dir train_dir model_dir log_dir logdir save_dir
    backup_dir output_dir out output save save_path checkpoint_path work_dir workdir
"""
# Function that takes a path for checkpoints -> (position, name) of the argument that is this path.
_CHECKPOINT_CALLS = {
    "BackupAndRestore": (0, "backup_dir"),
    "CheckpointManager": (1, "directory"),
    "ModelCheckpoint": (0, "filepath"),
}
_DATA_NAMES = ("data", "data_dir", "data_path", "dataset", "dataset_dir", "input_dir")


@dataclass(frozen=True)
class FolderProgram:
    """A program of the folder.

    `mode`: None if the program does not show its mode. `reason`: the construct that shows the mode,
    such as "train.py:12 uses tf.train.Server". If `mode` is None, `reason` lists constructs that
    show different modes.
    """

    path: str
    command: tuple[str, ...]
    mode: Mode | None
    reason: str
    keep: tuple[str, ...]  # folders to which the program writes checkpoints
    data: tuple[tuple[str, str], ...]  # (flag, path in the folder) of each data set
    uses_tensorflow: bool


def find_programs(
    sources: Mapping[str, str], exists: Callable[[str], bool], has_data: Callable[[str], bool]
) -> list[FolderProgram]:
    """Return the folder's programs, the most likely one first.

    `sources`: path -> text of each Python file. `exists(path)`: whether the folder contains this
    path. `has_data(path)`: whether this path is a folder without Python files, which may be data.
    """
    sources = {path: python2.without_unparsable_lines(text) for path, text in sources.items()}
    commands = {path: _choose_command(path, text) for path, text in sources.items()}
    parsed = {path: source.read_program(commands[path], sources) for path in sources}
    imported = {module.path for program in parsed.values() for module in program.modules[1:]}
    programs = [
        _describe_program(program, commands[path], exists, has_data)
        for path, program in parsed.items()
        if program.modules and _is_startable(program, is_imported=path in imported)
    ]
    return sorted(programs, key=_program_sort_key)


def _is_startable(program: Program, *, is_imported: bool) -> bool:
    """Return whether the file can be started as a program, and is not a test or a setup file."""
    stem = _stem(program.path or "")
    body = program.modules[0].tree.body
    if stem in _NO_PROGRAMS or stem.startswith("test_"):
        return False
    has_main = any(map(is_main_block, body))
    definitions = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign)
    acts = any(not isinstance(each, definitions) for each in body[1:])
    return has_main or (not is_imported and (acts or bool(find_signs(program))))


def _program_sort_key(program: FolderProgram) -> tuple[object, ...]:
    path, stem = program.path, _stem(program.path)
    own = program.reason.startswith(f"{path}:")
    later = any(word in stem for word in _LATER_NAMES)
    unusual = 0 if stem in _USUAL_NAMES else 1 if "train" in stem else 2
    return (
        program.mode is None,
        later,
        not own,
        not program.uses_tensorflow,
        path.count("/"),
        unusual,
        path,
    )


def _stem(path: str) -> str:
    return posixpath.splitext(posixpath.basename(path))[0]


def _choose_command(path: str, text: str) -> tuple[str, ...]:
    """Return the command that starts a program.

    A program that imports the package in which it lies is started as a module (`python -m`).
    """
    package = path.rpartition("/")[0].partition("/")[0]
    if package and re.search(rf"^\s*(?:from|import) {re.escape(package)}\b", text, re.MULTILINE):
        return "python", "-m", path.removesuffix(".py").replace("/", ".")
    return "python", path


def _describe_program(
    program: Program,
    command: tuple[str, ...],
    exists: Callable[[str], bool],
    has_data: Callable[[str], bool],
) -> FolderProgram:
    signs = find_signs(program)
    mode = likely_mode(signs)
    if mode is None:
        by_mode = {sign.modes[0]: str(sign) for sign in reversed(signs)}
        reason = ", ".join(sorted(by_mode.values()))
    else:
        fitting = [sign for sign in signs if mode in sign.modes]
        # Of several signs, the sign that allows the fewest modes is the most specific.
        reason = str(min(fitting, key=lambda sign: (sign.is_flag, len(sign.modes))))
    folders = [*filter(None, map(_top_folder, _checkpoint_paths(program)))]
    data: dict[str, str] = {}
    for flag in flag_definitions.defined_flags(program):
        path = posixpath.normpath(flag.default)
        is_data = exists(path) if flag.plain_name in _DATA_NAMES else has_data(path)
        if is_data and flag.form == "value" and _top_folder(path) not in ("", *folders):
            data.setdefault(flag.spelling, path)
    return FolderProgram(
        program.path or "",
        command,
        mode,
        reason,
        tuple(dict.fromkeys(folders)),
        tuple(data.items()),
        program.imports_any("tensorflow", "keras", "tf_keras"),
    )


def _checkpoint_paths(program: Program) -> Iterator[str]:
    for flag in flag_definitions.defined_flags(program):
        if flag.plain_name in _CHECKPOINT_NAMES.split():
            yield flag.default
    for call in program.find(ast.Call):
        name = ast.unparse(call.func).rpartition(".")[2]
        position, path_name = _CHECKPOINT_CALLS.get(name, (len(call.args), ""))
        given = call.args[position : position + 1]
        named = (*_CHECKPOINT_NAMES.split(), path_name)
        given += [each.value for each in call.keywords if each.arg in named]
        for path in filter(None, map(literal_text, given)):
            # ModelCheckpoint gets the path of a file, so the folder of this file is used.
            yield posixpath.dirname(path) if name == "ModelCheckpoint" else path


def _top_folder(path: str) -> str:
    """Return the first folder of a relative path. For any other path, return ""."""
    path = posixpath.normpath(path)
    return "" if path.startswith(("/", "~", ".")) else path.split("/")[0]
