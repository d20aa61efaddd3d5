"""Where a program's own flags mean something else than the cluster's: what cannot take what it would be given is refused.

Before anything is sent, with the definition's place. What may be meant otherwise, and takes it, is a note.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfdeploy.errors import Refused
from tfdeploy.model.cluster import ROLES
from tfdeploy.model.job import Job
from tfdeploy.planning.program import flags
from tfdeploy.planning.program.command_line import Appended
from tfdeploy.planning.program.flags import Flag
from tfdeploy.planning.program.source import Program

Values = Mapping[str, Mapping[str, str]]  # task -> flag's name -> the value that it has for the task


def check(job: Job, program: Program, added: Appended, values: Values) -> None:
    """`values`: of the tasks that run the program. Raises Refused."""
    defined = list(flags.definitions(program))
    for flag in added.flags:
        _takes_it(flag, [each for each in defined if each.name == flag.name], values)
        if not flag.where:
            _is_no_other(flag, program)
    for flag in added.own:
        _is_right_for_all(flag, job, values)


def notes(added: Appended) -> tuple[str, ...]:
    """A default that no role has makes one doubt that the flag is about roles."""
    return tuple(
        f"{flag.spelling} ({flag.where}) gets the task's role, and its default {flag.takes.default!r} is none: "
        "if it means something else, say `flags: none`"
        for flag in added.flags
        if flag.name == "job_name" and flag.takes.default not in ("", *ROLES)
    )


def _takes_it(flag: Flag, definitions: list[Flag], values: Values) -> None:
    """Of several definitions in one file, which one counts is not known: all of them must take it."""
    here = [each for each in definitions if not flag.where or _file(each) == _file(flag)]
    for each in here:
        for task, given in values.items():
            instead = _refuses(each, given[flag.name])
            if instead:
                what = f"{each.spelling} of the program takes {instead}, and for {task} it would be given {given[flag.name]!r}"
                raise _refusal(what, each.where, flag.name)
        if flag.where and each.form != flag.form:
            raise _refusal(f"{each.spelling} is defined in another way at {flag.where}", each.where, flag.name)


def _refuses(flag: Flag, value: str) -> str | None:
    if flag.name == "issync" and (flag.takes.kind == "bool" or flag.form in ("switch", "negated", "pair")):
        return None
    return flag.takes.refuses(value)


def _is_no_other(flag: Flag, program: Program) -> None:
    """Of `flags: classic`: argparse takes --worker_hosts for --worker_hosts_file, where that is all there is."""
    longer = dict(flags.abbreviated(program, flag.name))
    if longer and flag.spelling not in longer:
        spelling, where = next(iter(longer.items()))
        raise _refusal(f"the program has no {flag.spelling}, and would take it for its {spelling}", where, flag.name)


def _is_right_for_all(flag: Flag, job: Job, values: Values) -> None:
    """A role or an index that the command itself gives, it gives to every task."""
    given = _given(flag, job.command)
    wrong = [task for task, each in values.items() if each[flag.name] != given]
    if flag.name in ("job_name", "task_index") and wrong:
        raise Refused(
            f"the command gives {flag.spelling}={given or ''} to every task, {wrong[0]} too",
            where=job.source or "command",
            next=f"leave {flag.spelling} out: each task gets its own. `flags: none` runs the command as it stands",
        )


def _given(flag: Flag, command: tuple[str, ...]) -> str | None:
    for position, word in enumerate(command):
        spelling, equals, value = word.partition("=")
        if spelling.lstrip("-") == flag.spelling.lstrip("-") and word.startswith("-"):
            return value if equals else next(iter(command[position + 1 :]), None)
    return None


def _refusal(what: str, where: str, name: str) -> Refused:
    instead = f"say `flags: none`, and name what the program needs in the command, as in `--ITS_FLAG={{{name}}}`"
    return Refused(what, where=where, next=instead)


def _file(flag: Flag) -> str:
    return flag.where.rpartition(":")[0]
