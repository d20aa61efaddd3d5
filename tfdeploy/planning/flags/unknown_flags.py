"""Refuses a launch if the command contains a flag that the program does not define.

argparse and optparse end a program at such a flag. The check is left out if the program may accept
flags that its syntax tree does not show, for example if another library adds flags to its parser.
"""

from __future__ import annotations

import ast
import re

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job
from tfdeploy.model.text.nexts import most_similar
from tfdeploy.planning.flags import flag_definitions
from tfdeploy.planning.flags.required_flags import reads_flags_elsewhere
from tfdeploy.planning.source.entry_point import flags_end_index, program_index
from tfdeploy.planning.source.expressions import argument, last_name
from tfdeploy.planning.source.source import Program

_PARSERS = ("ArgumentParser", "OptionParser")
# Calls and names that make a program accept flags, or ignore them, in another way.
_OTHER_WAYS = ("parse_known_args", "parse_known_intermixed_args", "argv", "REMAINDER", "option")
_FLAG = re.compile(r"(--[\w-]+)(=.*)?", re.DOTALL)


def refuse_undefined_flags(job: Job, program: Program) -> None:
    """Raise Refused if the command contains a flag that the program does not define."""
    if job.flags not in (None, "auto") or program.unread_reason or len(program.entry_files) > 1:
        return
    words = job.command[(program_index(job.command) or 0) + 1 : flags_end_index(job.command)]
    given = [match[1] for word in words if (match := _FLAG.fullmatch(word))]
    known = _accepted_flags(program) if given else None
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


def _accepted_flags(program: Program) -> list[str] | None:
    """Return all flags that the program accepts, or None if they are not known for certain."""
    calls = [call for _, call in flag_definitions.executed_calls(program)]
    made = [call for call in calls if last_name(call.func) in _PARSERS]
    if (
        len(made) != 1
        or argument(made[0], "parents")
        or program.uses_any_name(*_OTHER_WAYS)
        or program.has_string_constant("...")
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
