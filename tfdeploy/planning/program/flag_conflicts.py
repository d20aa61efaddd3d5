"""Refuses a launch if the program's definition of a flag does not accept the value to be passed.

For example, the program may have a flag --task_index with another meaning. The error comes before
anything is sent, and names the place of the definition. If the flag accepts the value but may mean
something else, there is a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tfdeploy.errors import Refused
from tfdeploy.model.cluster import ROLES
from tfdeploy.model.job import Job
from tfdeploy.planning.flags import flag_definitions, flags
from tfdeploy.planning.flags.appended_flags import Appended
from tfdeploy.planning.flags.flag_definitions import Flag
from tfdeploy.planning.source.source import Program

# Task -> placeholder -> value for this task.
Values = Mapping[str, Mapping[str, str]]


def check(job: Job, program: Program, added: Appended, values: Values) -> None:
    """Raise Refused if the program does not accept the value of a flag that its tasks get.

    `values`: task -> placeholder -> value, for the tasks that run the program.
    """
    defined = flag_definitions.definitions(program)
    for flag in added.flags:
        _check_takes(flag, [each for each in defined if _same(each, flag)], values)
        if not flag.where:
            _check_abbreviation(flag, program)
    for flag in added.own:
        _check_own(flag, job, values)


def notes(added: Appended) -> tuple[str, ...]:
    """Return a note if the program's default for --job_name is not a role.

    The program's flag may then have another meaning.
    """
    return tuple(
        f"{flag.spelling} ({flag.where}) gets the task's role, and its default {flag.default!r} "
        "is none: "
        "if it means something else, say `flags: none`"
        for flag in added.flags
        if flag.name == "job_name" and not flag.because and flag.default not in ("", *ROLES)
    )


def _same(definition: Flag, flag: Flag) -> bool:
    """Return whether `definition` is the program's definition of this flag.

    A flag of the TensorFlow tutorials is not read from the program (`where` is empty), so any
    definition with that name counts, with dashes or underscores.
    """
    if flag.where or flag.form == "position":
        return flag.spelling in definition.spellings and flag.dest == definition.dest
    return flag.plain_name in map(flag_definitions.plain, definition.spellings)


def _check_takes(flag: Flag, definitions: list[Flag], values: Values) -> None:
    """Raise Refused unless every definition of the flag in its file accepts the value.

    If there are several definitions, it is not known which of them the program uses.
    """
    competing_definitions = [
        each for each in definitions if not flag.where or _file(each) == _file(flag)
    ]
    for each in competing_definitions:
        for task, given in values.items():
            value = flag.text(given)
            instead = _type_refusal(replace(each, name=flag.name), value)
            if instead:
                spelled = each.spelling or each.dest
                what = (
                    f"{spelled} of the program takes {instead}, and for {task} it would be given "
                    f"{value!r}"
                )
                raise _refusal(what, each.where, flag.name)
        if flag.where and each.form != flag.form and {each.form, flag.form} != {"value", "truthy"}:
            raise _refusal(
                f"{each.spelling} is defined in another way at {flag.where}", each.where, flag.name
            )


def _type_refusal(flag: Flag, value: str) -> str | None:
    if flag.name == "issync" and (
        flag.kind == "bool" or flag.form in ("switch", "negated", "pair")
    ):
        return None
    return flag.refusal(value)


def _check_abbreviation(flag: Flag, program: Program) -> None:
    """Raise Refused if argparse would read an appended flag as an abbreviation of a longer one.

    For example, argparse reads --worker_hosts as --worker_hosts_file if the program defines only
    the latter.
    """
    longer = dict(flags.abbreviated(program, flag.name))
    if longer and flag.spelling not in longer:
        spelling, where = next(iter(longer.items()))
        raise _refusal(
            f"the program has no {flag.spelling}, and would take it for its {spelling}",
            where,
            flag.name,
        )


def _check_own(flag: Flag, job: Job, values: Values) -> None:
    """Raise Refused if the command contains a fixed role or task index.

    Every task would get the same one.
    """
    if flag.form == "position":
        return
    given = flag_definitions.given_in(job.command).get(flag.spelling.lstrip("-"), "")
    wrong = [task for task, each in values.items() if flag.text(each) != given]
    if flag.name in ("job_name", "task_index") and wrong:
        raise Refused(
            f"the command gives {flag.spelling}={given} to every task, {wrong[0]} too",
            where=job.source or "command",
            next=f"leave {flag.spelling} out: each task gets its own. `flags: none` runs the "
            "command as it stands",
        )


def _refusal(what: str, where: str, name: str) -> Refused:
    instead = (
        "say `flags: none`, and name what the program needs in the command, as in "
        f"--ITS_FLAG={{{name}}}"
    )
    return Refused(what, where=where, next=instead)


def _file(flag: Flag) -> str:
    return flag.where.rpartition(":")[0]
