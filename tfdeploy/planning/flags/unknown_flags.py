"""Refuses a launch if the command contains a flag that the program does not define, or lacks an
argument that the program requires.

argparse and optparse end a program in both cases. The check is left out if the program may accept
flags that its syntax tree does not show, for example if another library adds flags to its parser.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job
from tfdeploy.model.text.nexts import most_similar
from tfdeploy.planning.flags import flag_definitions
from tfdeploy.planning.flags.flag_definitions import Flags
from tfdeploy.planning.flags.required_flags import reads_flags_elsewhere
from tfdeploy.planning.source.entry_point import Command, flags_end_index, program_index
from tfdeploy.planning.source.expressions import argument, last_name
from tfdeploy.planning.source.reached import certainly_reached
from tfdeploy.planning.source.source import Program

_PARSERS = ("ArgumentParser", "OptionParser")
# If a program contains one of these names, it may accept or ignore flags that `add_argument` does
# not define.
_OTHER_WAYS = ("parse_known_args", "parse_known_intermixed_args", "argv", "REMAINDER", "option")
_FLAG = re.compile(r"(--[\w-]+)(=.*)?", re.DOTALL)


def refuse_wrong_arguments(job: Job, program: Program, given_flags: Flags) -> None:
    """Raise Refused if the command has a flag that the program does not define, or lacks an
    argument that the program requires.

    `given_flags`: the flags and arguments that tfdeploy adds.
    """
    if job.flags not in (None, "auto") or program.unread_reason or len(program.entry_files) > 1:
        return
    words = job.command[(program_index(job.command) or 0) + 1 : flags_end_index(job.command)]
    given = [match[1] for word in words if (match := _FLAG.fullmatch(word))]
    known = _accepted_flags(program)
    if known is None or reads_flags_elsewhere(job, program):
        return
    for flag in given:
        if not any(each.startswith(flag) for each in known):
            near = most_similar(flag[2:], (each[2:] for each in known))
            hint = f"did you mean --{near}?" if near else f"it defines {' '.join(known)}."
            raise Refused(
                f"the command contains {flag}, which {program.path} does not define",
                where=job.places.get("command") or job.source or "command",
                next=f"{hint} `flags: none` runs the command as it stands",
            )
    required = _required_arguments(program, {flag.dest for flag in given_flags})
    count = _count_arguments(job.command, program)
    if count is not None and count < len(required):
        name, where = required[count]
        raise Refused(
            f"{program.path} ends at once without its argument {name} ({where}), and the command "
            "does not contain it",
            where=job.places.get("command") or job.source or "command",
            next="add it to the command, such as {data.NAME} for a data set. `flags: none` runs the "
            "command as it stands",
        )


def _required_arguments(program: Program, given: Collection[str]) -> list[tuple[str, str]]:
    """Return (name, "train.py:12") of each argument without a flag that argparse requires.

    Leaves out those in `given`, and those that the program may define only in some runs.
    """
    certain_nodes = certainly_reached(program, has_workers=True).nodes
    return [
        (name, f"{path}:{call.lineno}")
        for path, call in flag_definitions.executed_calls(program)
        if flag_definitions.is_argparse_definition(call)
        and id(call) in certain_nodes
        and argument(call, "nargs") is None
        for name in flag_definitions.literal_arguments(call)[:1]
        if not name.startswith("-") and name not in given
    ]


def _count_arguments(command: Command, program: Program) -> int | None:
    """Return how many words of the command are no flags and no values of flags.

    Returns None if that is not known, for example because a flag takes a list.
    """
    defined = flag_definitions.defined_flags(program)
    words = iter(command[(program_index(command) or 0) + 1 :])
    count = 0
    for word in words:
        if not word.startswith("-"):
            count += 1
            continue
        name, has_value, _ = word.partition("=")
        flag = next((each for each in defined if name in each.spellings), None)
        if flag is None or flag.form == "list" or flag.count != 1:
            return None
        if flag.form in ("value", "truthy") and flag.kind != "nothing" and not has_value:
            next(words, None)
    return count


def _accepted_flags(program: Program) -> list[str] | None:
    """Return all flags that the program accepts, or None if they are not known for certain."""
    calls = [call for _, call in flag_definitions.executed_calls(program)]
    made = [call for call in calls if last_name(call.func) in _PARSERS]
    if (
        len(made) != 1
        or argument(made[0], "parents")
        or program.uses_any_name(*_OTHER_WAYS)
        or program.has_string_constant("...")
        or any(last_name(each.func) == "parse_args" and each.args for each in calls)
        or _passes_parser_on(program, made[0], calls)
    ):
        return None
    known = ["--help"]
    for call in calls:
        flag = flag_definitions.read_definition(call)
        if flag_definitions.is_argparse_definition(call) and (
            flag is None or len(flag_definitions.literal_arguments(call)) < len(call.args)
        ):
            return None
        if flag is not None and flag.library != "argparse":
            return None
        known += (*flag.spellings, flag.off) if flag is not None else ()
    return [each for each in known if each.startswith("--")]


def _passes_parser_on(program: Program, parser_call: ast.Call, calls: list[ast.Call]) -> bool:
    """Return whether another library gets the parser that the call `parser_call` makes."""
    own = {node.name for _, node in program.find(ast.FunctionDef)}
    names = {
        last_name(target)
        for _, node in program.find(ast.Assign)
        if node.value is parser_call
        for target in node.targets
    }
    return not names or any(
        last_name(word) in names and last_name(call.func) not in own
        for call in calls
        for word in (*call.args, *(keyword.value for keyword in call.keywords))
    )
