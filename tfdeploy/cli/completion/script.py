"""Make the script that completes the command lines of tfdeploy in a shell, from the parsers."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tfdeploy.agent.wire import RUN_STATES
from tfdeploy.cli.arguments.completion import Shell
from tfdeploy.cli.arguments.docs import TOPICS
from tfdeploy.cli.command import make_parser
from tfdeploy.cli.flags import common_parser
from tfdeploy.config.file_schemas import FILE_SCHEMAS
from tfdeploy.model.output.printed import PRINTED

# Maps the name of a value in the help, such as FILE, to the words that complete the value. For a
# word that begins with `@`, the script offers names: for `@files` the names of files, for `@hosts`
# the names of hosts. `@list` offers nothing. It means that the value may be a list with commas.
_VALUES = {
    "DIR": "@folders",
    "FILE": "@files",
    "HOST": "@hosts",
    "HOSTS": "@list @hosts",
    "LIST": "@files",
    "PATH": "@files",
    "PATTERN": "@list @hosts @roles",
    "RUN": "@runs",
    "SCHEMA": " ".join((*PRINTED, *FILE_SCHEMAS)),
    "STATE,...": " ".join(("@list", *RUN_STATES)),
    "TASKS": "@list @tasks @roles",
    "TOPIC": " ".join(TOPICS),
}
# {shell: the files that make up its completion script, in this order}. `make_script` replaces
# `@ROWS@` in these files by the lists of verbs and flags.
_TEMPLATES: dict[Shell, tuple[str, ...]] = {
    "bash": ("rows.sh", "bash.sh"),
    "zsh": ("rows.sh", "zsh.sh"),
    "fish": ("fish.fish",),
}


class CompletionWord(NamedTuple):
    """A word of a command line.

    `name`: a flag or a verb; "" for an argument. `values`: the words that complete the flag's
    value, separated by spaces; None if the flag takes no value.
    """

    name: str
    values: str | None
    help: str


def make_script(shell: Shell) -> str:
    """Return the script that the shell must read to complete the command lines of tfdeploy."""
    parsers = (make_parser(), common_parser())
    rows: dict[str, list[str]] = {}
    for command, each in chain.from_iterable(map(list_command_words, parsers)):
        lines = rows.setdefault(command, [])
        for name, values, text in each:
            lines.append(f"{name}\t{'' if values is None else '=' + values}\t{text}")
    case = "    {}) rows=({}) ;;"
    if shell == "fish":
        case = "        case {}\n            printf '%s\\n' {}"
    quote = _quote_for_fish if shell == "fish" else shlex.quote
    cases = [
        case.format(quote(command), " ".join(map(quote, lines))) for command, lines in rows.items()
    ]
    folder = Path(__file__).parent
    template = "".join((folder / name).read_text(encoding="utf-8") for name in _TEMPLATES[shell])
    return template.replace("@ROWS@", "\n".join(cases))


def list_command_words(
    parser: argparse.ArgumentParser, command: str = ""
) -> Iterator[tuple[str, list[CompletionWord]]]:
    """Yield (command, the words that can follow it) for the parser and the parsers of its verbs.

    `command`: the verbs that lead to the parser, such as "lab up"; "" for the main parser.
    """
    rows: list[CompletionWord] = []
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            rows += [
                CompletionWord(each.dest, None, each.help or "") for each in action._choices_actions
            ]
            for verb, verb_parser in action.choices.items():
                yield from list_command_words(verb_parser, f"{command} {verb}".strip())
        elif action.help != argparse.SUPPRESS:
            values = None
            if action.nargs != 0:
                choices = " ".join(map(str, action.choices or ()))
                values = choices or _VALUES.get(str(action.metavar), "")
            text = formatter._expand_help(action) if action.help else ""
            rows += [CompletionWord(name, values, text) for name in action.option_strings or ("",)]
    yield command, rows


def _quote_for_fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
