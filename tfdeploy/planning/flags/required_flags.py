"""Supplies flags without which the program would exit at once.

Such a flag is declared as required in argparse, absl or click, or the program itself tests it, as
in `if not FLAGS.train_dir: raise ...`, in code that every run reaches. A flag for an output folder
gets the job's only `keep` folder. A flag for an input folder gets the job's only data set. If the
value of a required flag is not known, the launch is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules
from tfdeploy.planning.flags import flag_definitions
from tfdeploy.planning.flags.flag_definitions import Flag
from tfdeploy.planning.source import reached
from tfdeploy.planning.source.entry_point import own_end, program_index
from tfdeploy.planning.source.expressions import (
    EXITS,
    argument,
    ends_program,
    is_true,
    last_name,
    text,
)
from tfdeploy.planning.source.parsed_file import ParsedFile
from tfdeploy.planning.source.source import Program

_WRITTEN = re.compile(
    r"(train|log|logs|model|output|out|save|saved_?model|checkpoint|ckpt|summary|job|work|working|result)s?_?dir(ectory)?|logdir"
)
_READ = re.compile(
    r"(train_|training_|input_)?(data|dataset|input|image|mnist|cifar10?)s?(_?(dir|directory|path|root|folder))?"
)
_OF_DATA = re.compile(r"(data|image|record|sample)", re.IGNORECASE)
_EXITS = (*EXITS, "error")
# In modes with ranks, a flag with one of these names gets the placeholder of the same name.
_RANKS = ("rank", "world_size", "local_rank")
_PARSERS = ("configargparse", "jsonargparse", "docopt", "fire")


@dataclass(frozen=True)
class Supplied:
    """Required flags that tfdeploy adds to the command, with values, and a note on each flag."""

    flags: tuple[Flag, ...] = ()
    notes: tuple[str, ...] = ()


def supply(
    job: Job, program: Program, known: tuple[Flag, ...], given: tuple[Flag, ...]
) -> Supplied:
    """Return the program's required flags that its tasks would not get otherwise, with values.

    Raises Refused if the value of such a flag is not known. `known`: the flags that describe the
    cluster. `given`: the flags that the tasks get anyway.
    """
    if job.flags not in (None, "auto") or program.unread or len(program.roots) > 1:
        return Supplied()
    settled = {flag.dest for flag in given}
    lacking = [
        each
        for each in _required(program)
        if each[0].dest not in settled and not _is_given(each[0], job)
    ]
    if not lacking or _elsewhere(job, program):
        return Supplied()
    valued = [
        (_valued(flag, job, known, [each for each, _ in lacking]), where) for flag, where in lacking
    ]
    for flag, where in valued:
        if not flag.template:
            raise Refused(
                f"{program.path} ends at once without {flag.spelling} ({where}), and the command "
                "does not give it",
                where=job.places.get("command") or job.source or "command",
                next=_recipe(flag, job),
            )
    return Supplied(
        tuple(flag for flag, _ in valued),
        tuple(
            f"{flag.spelling}={flag.template}: the program must be given it ({where})"
            for flag, where in valued
        ),
    )


def _valued(flag: Flag, job: Job, known: tuple[Flag, ...], lacking: list[Flag]) -> Flag:
    """Return the flag with `template` set to its value, such as "{keep.train}".

    If the value is not known, `template` is empty.
    """
    for each in known:
        if each.dest == flag.dest and each.name != "issync":
            return replace(each, template=each.template or f"{{{each.name}}}")
    if rules(job.mode).ranks and flag.dest in _RANKS:
        return replace(flag, template=f"{{{flag.dest}}}")
    kind = _folder_kind(flag)
    folders = _folders(job, kind)
    alone = kind == "data" or sum(_folder_kind(each) == kind for each in lacking) == 1
    if len(folders) == 1 and alone and flag.kind == "text":
        return replace(flag, template=f"{{{kind}.{folders[0]}}}")
    return flag


def _folder_kind(flag: Flag) -> str:
    """Return "keep" if the flag names an output folder, "data" if an input folder, else ""."""
    name = flag.dest.lower()
    has_data_to_train = flag.dest.startswith("train") and _OF_DATA.search(flag.help)
    if has_data_to_train or _READ.fullmatch(name):
        return "data"
    return "keep" if _WRITTEN.fullmatch(name) else ""


def _folders(job: Job, kind: str) -> tuple[str, ...]:
    return {"keep": job.keep, "data": tuple(job.data)}.get(kind, ())


def _recipe(flag: Flag, job: Job) -> str:
    kind = _folder_kind(flag)
    if not kind:
        return (
            f"give it in the command: {flag.spelling}=VALUE; `flags: none` launches it as it stands"
        )
    folders = _folders(job, kind)
    example, key = ("train", "keep: [train]") if kind == "keep" else ("NAME", "data: {NAME: PATH}")
    write = "" if folders else f"write `{key}` and "
    return f"{write}give it in the command: {flag.spelling}={{{kind}.{(*folders, example)[0]}}}"


def _is_given(flag: Flag, job: Job) -> bool:
    """Return whether the command contains the flag: in full, abbreviated, or as `-x` with a
    value."""
    command_options = [
        word.split("=")[0] for word in job.command[: own_end(job.command)] if word.startswith("-")
    ]
    names = [spelling.lstrip("-") for spelling in flag.spellings]
    short = [spelling for spelling in flag.spellings if not spelling.startswith("--")]
    return any(
        (len(word) > 2 and any(name.startswith(word.lstrip("-")) for name in names))
        or any(word.startswith(each) for each in short)
        for word in command_options
    )


def _elsewhere(job: Job, program: Program) -> bool:
    """Return whether a required flag may be unnecessary on the command line.

    It is so if flags may come from a file or from a list in the program, or if only one of several
    subcommands may require the flag.
    """
    behind = job.command[program_index(job.command) or 0 :]
    if any(word.startswith(("@", "--flagfile", "-flagfile", "--help")) for word in behind):
        return True
    commands = [
        node
        for _, node in program.find(ast.FunctionDef)
        if "command" in map(_decorator, node.decorator_list)
    ]
    return len(commands) > 1 or any(
        _reads_otherwise(node) for _, node in program.find(ast.Import, ast.ImportFrom, ast.Call)
    )


def _decorator(node: ast.expr) -> str:
    return last_name(node.func if isinstance(node, ast.Call) else node)


def _reads_otherwise(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return any(
            name in _PARSERS
            for name in (getattr(node, "module", ""), *(alias.name for alias in node.names))
        )
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func)
    if name in ("parse_args", "parse_known_args"):
        return isinstance(argument(node, "args", 0), ast.List | ast.Constant)
    return name == "add_subparsers" or argument(node, "fromfile_prefix_chars") is not None


def _required(program: Program) -> list[tuple[Flag, str]]:
    """Return (flag, "train.py:12" where the program requires it), each flag once."""
    defined = {
        flag.dest: flag for flag in reversed(flag_definitions.definitions(program)) if flag.spelling
    }
    if not defined:
        return []
    run = reached.reached(program, workers=True)
    certain: dict[str, str] = {}
    tested: dict[str, str] = {}
    for path, node in program.find(ast.Call, ast.If, ast.Assert):
        if id(node) in run.nodes:
            where = f"{path}:{getattr(node, 'lineno', 1)}"
            certain |= {
                dest: where
                for dest in _by_definition(node, program.by_path[path])
                if dest not in certain
            }
            tested |= {dest: where for dest in _by_test(node) if dest not in tested}
    targets = [target for _, node in program.find(ast.Assign) for target in node.targets]
    given = {target.attr for target in targets if isinstance(target, ast.Attribute)}
    tested = {
        dest: where
        for dest, where in tested.items()
        if dest in defined and defined[dest].empty and dest not in given
    }
    return [(defined[dest], where) for dest, where in (tested | certain).items() if dest in defined]


def _by_definition(node: ast.AST, module: ParsedFile) -> Iterator[str]:
    """Yield the attribute name of each flag that this call declares as required."""
    if not isinstance(node, ast.Call):
        return
    if is_true(argument(node, "required")):
        flag = flag_definitions.of_call(node)
        yield from [flag.dest] if flag else []
    elif last_name(node.func) in ("mark_flag_as_required", "mark_flags_as_required"):
        constants = (each for each in module.within(node) if isinstance(each, ast.Constant))
        yield from (name.replace("-", "_") for each in constants if (name := text(each)))


def _by_test(node: ast.AST) -> Iterator[str]:
    """Yield the attribute name of each flag without which this statement ends the program."""
    tests = (
        [*_if_empty(node.test)]
        if isinstance(node, ast.If) and ends_program(node.body[-1], _EXITS)
        else []
    )
    tests += [*_if_there(node.test)] if isinstance(node, ast.Assert) else []
    yield from (test.attr for test in tests if isinstance(test, ast.Attribute))


def _if_empty(test: ast.expr) -> Iterator[ast.expr]:
    """Yield each expression that, if it is empty, makes the condition true by itself."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        for value in test.values:
            yield from _if_empty(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _if_there(test.operand)
    elif (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Is | ast.Eq)
        and _is_empty(test.comparators[0])
    ):
        yield test.left


def _if_there(test: ast.expr) -> Iterator[ast.expr]:
    """Yield the expressions that must all be non-empty for the condition to be true."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for value in test.values:
            yield from _if_there(value)
    elif (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.IsNot | ast.NotEq)
        and _is_empty(test.comparators[0])
    ):
        yield test.left
    elif isinstance(test, ast.Attribute):
        yield test


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, "")
