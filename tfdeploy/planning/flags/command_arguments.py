"""Refuses a command whose arguments would end the program at once, and adds required flags to it.

argparse and optparse end a program if the command contains a flag that the program does not define,
or lacks a required argument. Nothing is refused if the program may accept flags that its syntax
tree does not show, for example if another library adds flags to the program's parser.

A flag is required if the program declares it as required in argparse, absl or click, or tests it in
code that every run reaches, as in `if not FLAGS.train_dir: raise ...`. If the job has one `keep`
folder, a flag for an output folder gets this folder. If the job has one data set, a flag for an
input folder gets this data set. If the value of a required flag is not known, the launch is
refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import Notes
from tfdeploy.planning.flags import flag_definitions
from tfdeploy.planning.flags.flag_definitions import Flag, Flags
from tfdeploy.planning.flags.flags import cluster_flags
from tfdeploy.planning.source import reached
from tfdeploy.planning.source.entry_point import flags_end_index, program_index
from tfdeploy.planning.source.expressions import (
    EXITS,
    argument,
    decorator_name,
    ends_program,
    is_true,
    last_name,
)
from tfdeploy.planning.source.parsed_file import place_of, subtree
from tfdeploy.planning.source.source import Program
from tfdeploy.text.nexts import most_similar

# OUTPUT_NAME matches the names of flags and variables for an output folder. INPUT_NAME matches the
# names for an input folder.
OUTPUT_NAME = re.compile(
    r"(train|log|model|output|out|save|saved_?model|checkpoint|ckpt|backup|summary|job|work|"
    r"working|result)s?_?dir(ectory)?"
)
INPUT_NAME = re.compile(
    r"(train_|training_|input_)?(data|dataset|input|image|mnist|cifar10?)s?"
    r"(_?(dir|directory|path|root|folder))?"
)
_OF_DATA = re.compile(r"(data|image|record|sample)", re.IGNORECASE)
_EXITS = (*EXITS, "error")
# In modes with ranks, the value of a flag with one of these names is the placeholder of that name.
_RANKS = ("rank", "world_size", "local_rank")
_LIBRARIES = ("configargparse", "jsonargparse", "docopt", "fire")
_PARSERS = ("ArgumentParser", "OptionParser")
# If a program contains one of these names, it may accept or ignore flags that `add_argument` does
# not define.
_OTHER_WAYS = ("parse_known_args", "parse_known_intermixed_args", "argv", "REMAINDER", "option")
_FLAG = re.compile(r"(--[\w-]+)(=.*)?", re.DOTALL)
_AS_IT_STANDS = "With `flags: none`, the command runs unchanged"


@dataclass(frozen=True)
class SuppliedFlags:
    """The required flags that tfdeploy adds to the command, with values, and a note on each."""

    flags: Flags = ()
    notes: Notes = ()


def supply_required_flags(job: Job, program: Program, given_cluster_flags: Flags) -> SuppliedFlags:
    """Return the required flags that the job's command lacks, with values.

    Raises Refused if the value of such a flag is not known, if the command lacks an argument that
    the program requires, or if the command has a flag that the program does not define.
    `given_cluster_flags`: the flags and arguments about the cluster that the tasks already get.
    """
    if (
        job.flags not in (None, "auto")
        or program.unread_reason
        or (program.script_line and not program.script_line.passes_arguments)
        or len(program.entry_files) > 1
        or _reads_flags_elsewhere(job, program)
    ):
        return SuppliedFlags()
    settled = {flag.dest for flag in given_cluster_flags}
    if (accepted := _accepted_flags(program)) is not None:
        _refuse_unknown_flags(job, program, accepted)
        _refuse_missing_argument(job, program, settled)
    lacking = {
        flag: where
        for flag, where in _required_flags(program).items()
        if flag.dest not in settled and not _is_given(flag, job)
    }
    flags, notes = [], [] if accepted else [*_misspelt_flag_notes(job, program)]
    for each, where in lacking.items():
        flag = _with_value_template(each, job, program, lacking)
        if not flag.template:
            raise _lacking_error(job, program, flag.spelling, where, _how_to_add(flag, job))
        flags.append(flag)
        notes.append(f"{flag.spelling}={flag.template}: the program requires this flag ({where})")
    notes += [
        f"{flag.spelling} is {flag.default} by default ({flag.where}), so what the program saves "
        f"there is in no `keep` folder; {_how_to_add(flag, job)}"
        for flag in flag_definitions.defined_flags(program)
        if flag.default.startswith("/")
        and _folder_kind(flag) == "keep"
        and not _is_given(flag, job)
    ]
    return SuppliedFlags(tuple(flags), tuple(notes))


def _refuse_unknown_flags(job: Job, program: Program, accepted: list[str]) -> None:
    for flag in _long_flags(job):
        if any(each.startswith(flag) for each in accepted):
            continue
        near = most_similar(flag[2:], (each[2:] for each in accepted))
        hint = f"did you mean --{near}?" if near else f"it defines {' '.join(accepted)}."
        raise Refused(
            f"the command contains {flag}, which {program.path} does not define",
            where=job.command_place,
            next=f"{hint} {_AS_IT_STANDS}",
        )


def _misspelt_flag_notes(job: Job, program: Program) -> Iterator[str]:
    """Yield a note on each flag of the command that is probably a misspelt flag of the program.

    This is no error, because the program may accept more flags than its syntax tree shows, or
    ignore unknown flags, as tf.app.run does.
    """
    defined = _long_spellings(flag_definitions.defined_flags(program))
    # Two forms are correct and get no note: argparse accepts abbreviations, and absl accepts
    # --noNAME for a boolean flag.
    abbreviates = program.uses_any_name(*_PARSERS)
    for flag in _long_flags(job):
        near = most_similar(flag, defined, 0.8)
        is_abbreviation = abbreviates and near.startswith(flag)
        if near and not is_abbreviation and near not in (flag, flag.replace("--no", "--", 1)):
            yield (
                f"the command contains {flag}, which {program.path} does not define and may "
                f"ignore: did you mean {near}?"
            )


def _long_flags(job: Job) -> Iterator[str]:
    """Yield the flags of the command that start with two dashes, without their values."""
    words = job.command[(program_index(job.command) or 0) + 1 : flags_end_index(job.command)]
    return (match[1] for word in words if (match := _FLAG.fullmatch(word)))


def _long_spellings(flags: Flags) -> list[str]:
    spellings = (each for flag in flags for each in (*flag.spellings, flag.off))
    return [each for each in spellings if each.startswith("--")]


def _refuse_missing_argument(job: Job, program: Program, unneeded: Collection[str]) -> None:
    """Raise Refused if the command has too few positional arguments for argparse.

    `unneeded`: names of arguments that the command may lack. It may also lack an argument that
    the program defines only in some runs.
    """
    certain_nodes = reached.certainly_reached(program, has_workers=True).nodes
    required = [
        flag
        for flag in flag_definitions.defined_flags(program)
        if flag.form == "position" and flag.dest not in unneeded
        if flag.call and id(flag.call) in certain_nodes and argument(flag.call, "nargs") is None
    ]
    words, is_certain = flag_definitions.positional_words(job.command, program)
    for flag in required[len(words) :][:1] if is_certain else ():
        how = f"add its value to the command (for data, {{data.NAME}}). {_AS_IT_STANDS}"
        raise _lacking_error(job, program, f"the program's argument {flag.dest}", flag.where, how)


def _lacking_error(
    job: Job, program: Program, lacking: str, where: str, how_to_add: str
) -> Refused:
    return Refused(
        f"the command does not contain {lacking} ({where}): {program.path} would end at once "
        "with an error",
        where=job.command_place,
        next=how_to_add,
    )


def _accepted_flags(program: Program) -> list[str] | None:
    """Return all flags that the program accepts, or None if they are not known for certain."""
    calls = list(flag_definitions.executed_calls(program))
    made = [call for call in calls if last_name(call.func) in _PARSERS]
    definitions = [call for call in calls if flag_definitions.is_argparse_definition(call)]
    flags = flag_definitions.defined_flags(program)
    if (
        len(made) != 1
        or argument(made[0], "parents")
        or program.uses_any_name(*_OTHER_WAYS)
        or program.has_string_constant("...")
        or any(last_name(each.func) == "parse_args" and each.args for each in calls)
        or _passes_parser_on(program, made[0], calls)
        or any(
            len(flag_definitions.literal_arguments(each)) < len(each.args) for each in definitions
        )
        or [flag.call for flag in flags] != definitions
    ):
        return None
    return ["--help", *_long_spellings(flags)]


def _passes_parser_on(program: Program, parser_call: ast.Call, calls: list[ast.Call]) -> bool:
    """Return whether the program may pass its parser to another library, which may add flags.

    `parser_call`: the call that makes the parser.
    """
    own = {node.name for node in program.find(ast.FunctionDef)}
    names = {
        last_name(target)
        for node in program.find(ast.Assign)
        if node.value is parser_call
        for target in node.targets
    }
    return not names or any(
        last_name(word) in names and last_name(call.func) not in own
        for call in calls
        for word in (*call.args, *(keyword.value for keyword in call.keywords))
    )


def _with_value_template(flag: Flag, job: Job, program: Program, lacking: Collection[Flag]) -> Flag:
    """Return the flag with `template` set to its value, such as "{keep.train}".

    If the value is not known, `template` is empty.
    """
    mode = rules_of(job.mode)
    clustered = not (mode.single or mode.ranks)
    for each in cluster_flags(program).flags if clustered else ():
        if each.dest == flag.dest and each.name != "issync":
            return replace(each, template=each.template or f"{{{each.name}}}")
    if mode.ranks and flag.dest in _RANKS:
        return replace(flag, template=f"{{{flag.dest}}}")
    kind = _folder_kind(flag)
    folders = _job_folders(job, kind)
    alone = kind == "data" or sum(_folder_kind(each) == kind for each in lacking) == 1
    known_folder = len(folders) == 1 and alone and flag.kind == "text"
    return replace(flag, template=f"{{{kind}.{folders[0]}}}") if known_folder else flag


def _folder_kind(flag: Flag) -> str:
    """Return "keep" for a flag for an output folder, "data" for an input folder, else ""."""
    name = flag.dest.lower()
    has_data_to_train = flag.dest.startswith("train") and _OF_DATA.search(flag.help)
    if has_data_to_train or INPUT_NAME.fullmatch(name):
        return "data"
    return "keep" if OUTPUT_NAME.fullmatch(name) else ""


def _job_folders(job: Job, kind: str) -> tuple[str, ...]:
    return {"keep": job.keep, "data": tuple(job.data)}.get(kind, ())


def _how_to_add(flag: Flag, job: Job) -> str:
    kind = _folder_kind(flag)
    if not kind:
        return (
            f"add {flag.spelling}=VALUE to the command; with `flags: none`, tfdeploy does not "
            "change the command"
        )
    folders = _job_folders(job, kind)
    example, key = ("train", "keep: [train]") if kind == "keep" else ("NAME", "data: {NAME: PATH}")
    write = "" if folders else f"write `{key}` and "
    return f"{write}add {flag.spelling}={{{kind}.{(*folders, example)[0]}}} to the command"


def _is_given(flag: Flag, job: Job) -> bool:
    """Return whether the command contains the flag.

    The flag may be written in full, abbreviated, or as `-x` directly followed by a value.
    """
    options = [
        word.split("=")[0]
        for word in job.command[: flags_end_index(job.command)]
        if word.startswith("-")
    ]
    return any(
        (len(option) > 2 and spelling.lstrip("-").startswith(option.lstrip("-")))
        or (not spelling.startswith("--") and option.startswith(spelling))
        for option in options
        for spelling in flag.spellings
    )


def _reads_flags_elsewhere(job: Job, program: Program) -> bool:
    """Return whether a required flag may be unnecessary on the command line.

    It may be unnecessary if the program can read flags from a file or from a list in its code, or
    if the program has subcommands, because only one of them may require the flag.
    """
    behind = job.command[program_index(job.command) or 0 :]
    if any(word.startswith(("@", "--flagfile", "-flagfile", "--help")) for word in behind):
        return True
    imported = {
        name
        for node in program.imports
        for name in (getattr(node, "module", ""), *(alias.name for alias in node.names))
    }
    commands = [
        node
        for node in program.find(ast.FunctionDef)
        if "command" in map(decorator_name, node.decorator_list)
    ]
    return (
        len(commands) > 1
        or not imported.isdisjoint(_LIBRARIES)
        or any(_call_reads_flags_elsewhere(call) for call in program.find(ast.Call))
    )


def _call_reads_flags_elsewhere(call: ast.Call) -> bool:
    """Return whether the call adds subcommands, or reads flags from a file or a list."""
    name = last_name(call.func)
    if name in ("parse_args", "parse_known_args"):
        return isinstance(argument(call, "args", 0), ast.List | ast.Constant)
    return name == "add_subparsers" or argument(call, "fromfile_prefix_chars") is not None


def _required_flags(program: Program) -> dict[Flag, str]:
    """Return {required flag: the place where the program requires it, such as "train.py:12"}."""
    defined = {
        flag.dest: flag
        for flag in reversed(flag_definitions.defined_flags(program))
        if flag.spelling
    }
    if not defined:
        return {}
    run = reached.certainly_reached(program, has_workers=True)
    declared: dict[str, str] = {}
    tested: dict[str, str] = {}
    nodes: Iterator[ast.Call | ast.If | ast.Assert] = program.find(ast.Call, ast.If, ast.Assert)
    for node in nodes:
        if id(node) in run.nodes:
            for dest in _flags_required_by(node):
                (declared if isinstance(node, ast.Call) else tested).setdefault(
                    dest, place_of(node)
                )
    targets = [target for node in program.find(ast.Assign) for target in node.targets]
    given = {target.attr for target in targets if isinstance(target, ast.Attribute)}
    return {
        flag: where
        for dest, where in (tested | declared).items()
        if (flag := defined.get(dest)) and (dest in declared or (flag.empty and dest not in given))
    }


def _flags_required_by(node: ast.AST) -> Iterator[str]:
    """Yield the attribute name (`dest`) of each flag that this syntax node shows to be required.

    Such a node is a call that declares a flag as required, or an `if` or `assert` that ends the
    program without the flag.
    """
    match node:
        case ast.Call() if is_true(argument(node, "required")):
            if flag := flag_definitions.read_definition(node):
                yield flag.dest
        case ast.Call() if last_name(node.func) in (
            "mark_flag_as_required",
            "mark_flags_as_required",
        ):
            for each in subtree(node):
                match each:
                    case ast.Constant(str(name)) if name:
                        yield name.replace("-", "_")
        case ast.If(test, [*_, last]) if ends_program(last, _EXITS):
            yield from _attributes_tested_empty(test)
        case ast.Assert(test):
            yield from _attributes_tested_present(test)


def _attributes_tested_empty(test: ast.expr) -> Iterator[str]:
    """Yield the attributes that make the condition true if any one of them is empty.

    For `not FLAGS.a or FLAGS.b is None`, they are "a" and "b".
    """
    match test:
        case ast.BoolOp(ast.Or(), values):
            for value in values:
                yield from _attributes_tested_empty(value)
        case ast.UnaryOp(ast.Not(), operand):
            yield from _attributes_tested_present(operand)
        case ast.Compare(
            ast.Attribute(attr=name), [ast.Is() | ast.Eq(), *_], [ast.Constant(None | ""), *_]
        ):
            yield name


def _attributes_tested_present(test: ast.expr) -> Iterator[str]:
    """Yield the attributes that the condition requires to be non-empty.

    For `FLAGS.a and FLAGS.b != ""`, they are "a" and "b".
    """
    match test:
        case ast.BoolOp(ast.And(), values):
            for value in values:
                yield from _attributes_tested_present(value)
        case ast.Attribute(attr=name) | ast.Compare(
            ast.Attribute(attr=name),
            [ast.IsNot() | ast.NotEq(), *_],
            [ast.Constant(None | ""), *_],
        ):
            yield name
