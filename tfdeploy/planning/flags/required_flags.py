"""Supplies the flags without which the program exits at once, or refuses the launch.

A flag is required by argparse, absl or click, or by the program's own `if not FLAGS.train_dir:
raise ...`, in code that it surely executes. A flag for an output folder gets the job's only `keep`
folder; a flag for an input folder gets the job's only data set. A flag whose value is not known is
refused before the launch.
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
# Flags of the modes with ranks; their values are the placeholders of the same names.
_RANKS = ("rank", "world_size", "local_rank")
_PARSERS = ("configargparse", "jsonargparse", "docopt", "fire")


@dataclass(frozen=True)
class Supplied:
    """The supplied flags with their values (as templates), and a note on each."""

    flags: tuple[Flag, ...] = ()
    notes: tuple[str, ...] = ()


def supply(
    job: Job, program: Program, known: tuple[Flag, ...], given: tuple[Flag, ...]
) -> Supplied:
    """Return the required flags that nothing gives yet. Raises Refused if a value is not known.

    `known`: the flags that describe the cluster. `given`: the flags that the tasks get anyway.
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
    """Return the flag with a template for its value.

    The template stays empty if the value is not known.
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
    """Return "keep" for a folder that the program writes, "data" for one that it reads, else ""."""
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
    """Return whether the command has the flag, in full, abbreviated, or short with its value."""
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
    """Return whether flags may come from a file or a list, or are required by one subcommand
    only."""
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
    """Return (flag, the place that requires it), each flag once."""
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
    """Yield the attributes of the flags that this call declares as required."""
    if not isinstance(node, ast.Call):
        return
    if is_true(argument(node, "required")):
        flag = flag_definitions.of_call(node)
        yield from [flag.dest] if flag else []
    elif last_name(node.func) in ("mark_flag_as_required", "mark_flags_as_required"):
        constants = (each for each in module.within(node) if isinstance(each, ast.Constant))
        yield from (name.replace("-", "_") for each in constants if (name := text(each)))


def _by_test(node: ast.AST) -> Iterator[str]:
    """Yield the attributes that must be set, because this statement ends the program otherwise."""
    tests = (
        [*_if_empty(node.test)]
        if isinstance(node, ast.If) and ends_program(node.body[-1], _EXITS)
        else []
    )
    tests += [*_if_there(node.test)] if isinstance(node, ast.Assert) else []
    yield from (test.attr for test in tests if isinstance(test, ast.Attribute))


def _if_empty(test: ast.expr) -> Iterator[ast.expr]:
    """Yield each expression that makes the test true by being empty."""
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
    """Yield the expressions that must not be empty if the test is to be true."""
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
