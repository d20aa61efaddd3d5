"""Refuses a launch if the program defines a flag that does not accept the value of tfdeploy.

For example, the program may have a flag --task_index with another meaning. The error is raised
before anything is sent to hosts, and names the place of the definition. If the flag accepts the
value but may mean something else, there is only a note.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job
from tfdeploy.model.modes import ROLES
from tfdeploy.model.plan import Notes
from tfdeploy.planning.flags import flag_definitions
from tfdeploy.planning.flags.appended_flags import AppendedFlags
from tfdeploy.planning.flags.flag_definitions import Flag, Flags
from tfdeploy.planning.source.expressions import argument
from tfdeploy.planning.source.source import Program

# {task: {placeholder: its value for this task}}.
Values = Mapping[str, Mapping[str, str]]


def refuse_unaccepted_values(
    job: Job, program: Program, added: AppendedFlags, values: Values
) -> None:
    """Raise Refused if the program does not accept the value of a flag that its tasks get.

    `values`: {task: {placeholder: value}}, for the tasks that run the program.
    """
    defined = flag_definitions.defined_flags(program)
    for flag in added.flags:
        _refuse_unaccepted_value(
            flag, [each for each in defined if _is_definition_of(each, flag)], values
        )
        if not flag.where:
            _refuse_abbreviation(flag, defined, program)
    for flag in added.in_command:
        _refuse_fixed_identity(flag, job, values)


def notes(added: AppendedFlags) -> Notes:
    """Return a note if the program's default for --job_name is not a role.

    The program's flag may then have another meaning.
    """
    return tuple(
        f"{flag.spelling} ({flag.where}) gets the task's role, but its default {flag.default!r} "
        "is not a role: if the flag means something else, write `flags: none`"
        for flag in added.flags
        if flag.name == "job_name" and not flag.because and flag.default not in ("", *ROLES)
    )


def _is_definition_of(definition: Flag, flag: Flag) -> bool:
    """Return whether `definition` is the program's definition of this flag.

    If the flag's `where` is empty, the flag was not found in the program: tfdeploy assumes that the
    program has it, as the TensorFlow tutorials do. Then every definition with the same name counts,
    whether the name has dashes or underscores.
    """
    if flag.where or flag.form == "position":
        return flag.spelling in definition.spellings and flag.dest == definition.dest
    return flag.plain_name in map(flag_definitions.plain_name, definition.spellings)


def _refuse_unaccepted_value(flag: Flag, definitions: list[Flag], values: Values) -> None:
    """Raise Refused unless every definition of the flag in its file accepts the value.

    All definitions must accept it, because it is not known which of them the program uses.
    """
    for each in definitions:
        if flag.where and _defining_file(each) != _defining_file(flag):
            continue
        is_switch = flag.name == "issync" and (
            each.kind == "bool" or each.form in ("switch", "negated", "pair")
        )
        for task, given in values.items() if not is_switch else ():
            value = flag.value_for_task(given)
            if instead := each.why_refused(value):
                what = (
                    f"{each.spelling or each.dest} of the program accepts {instead}, but tfdeploy "
                    f"would set it to {value!r} for {task}"
                )
                raise _refusal(what, each.where, flag.name)
        if flag.where and each.form != flag.form and {each.form, flag.form} != {"value", "truthy"}:
            raise _refusal(
                f"{each.spelling} is defined differently at {flag.where}", each.where, flag.name
            )


def _refuse_abbreviation(flag: Flag, defined: Flags, program: Program) -> None:
    """Raise Refused if argparse would read an appended flag as an abbreviation of a longer one.

    For example, argparse reads --worker_hosts as --worker_hosts_file if the program defines only
    the latter.
    """
    if any(argument(call, "allow_abbrev") for call in program.find(ast.Call)):
        return
    longer = {
        spelling: each.where
        for each in defined
        for spelling in each.spellings
        if each.library == "argparse" and spelling.startswith(flag.spelling)
    }
    for spelling, where in longer.items() if flag.spelling not in longer else ():
        what = f"the program lacks {flag.spelling}: argparse would read it as {spelling}"
        raise _refusal(what, where, flag.name)


def _refuse_fixed_identity(flag: Flag, job: Job, values: Values) -> None:
    """Raise Refused if the command contains a fixed role or task index.

    With such a command, all tasks would get the same role or index.
    """
    if flag.form == "position" or flag.name not in ("job_name", "task_index"):
        return
    given = flag_definitions.flags_in_command(job.command).get(flag.spelling.lstrip("-"), "")
    for task, each in values.items():
        if flag.value_for_task(each) != given:
            raise Refused(
                f"the command gives {flag.spelling}={given} to every task, and so to {task}",
                where=job.command_place,
                next=f"remove {flag.spelling}: tfdeploy gives each task its own value. With "
                "`flags: none`, the command runs unchanged",
            )


def _refusal(what: str, where: str, name: str) -> Refused:
    return Refused(
        what,
        where=where,
        next="write `flags: none`, and write the flags that the program needs into the command, "
        f"for example --FLAG={{{name}}}",
    )


def _defining_file(flag: Flag) -> str:
    return flag.where.rpartition(":")[0]
