"""Convert argparse's namespace into a frozen dataclass that holds the flags of one verb.

`CommonFlags` has the flags that all verbs share. A subclass in `arguments/` adds the flags of one
verb. Verbs never see the namespace.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TextIO, TypeVar, get_args

from tfdeploy.cli.declared import add_declared_arguments, argument, option, switch
from tfdeploy.cli.options import (
    Parser,
    env_default,
    is_env_true,
    positive,
    rate,
    unknown_choice_error,
)
from tfdeploy.cli.verb_table import NO_FILES, VERBS
from tfdeploy.errors import UsageError

if TYPE_CHECKING:
    # The module `typing` contains `dataclass_transform` only from Python 3.11 on.
    from typing_extensions import dataclass_transform

    from tfdeploy.ui.terminal import Terminal
else:

    def dataclass_transform(**_):
        """Do nothing: the decorator only tells type checkers about `__init_subclass__`."""
        return lambda cls: cls


_COMMAND_IN_TEXT = re.compile(r"\btfdeploy ([a-z]+)\b(?! --help\b)")
_COMMON_TITLE = "common options"
Color = Literal["auto", "always", "never"]
COLORS: tuple[Color, ...] = get_args(Color)
RUN_HELP = "id or unique prefix (default: the newest of this job)"


def _default_color(field_name: str) -> str:
    """Return the default of --color from the environment.

    Raises UsageError for an unknown value, because argparse does not check defaults.
    """
    color = env_default(field_name) or ("never" if is_env_true("no-color") else "auto")
    if color not in COLORS:
        raise unknown_choice_error(color, COLORS, "TFDEPLOY_COLOR")
    return color


@dataclass_transform(kw_only_default=True, frozen_default=True)
class VerbFlags:
    """The flags of a verb. Each verb has a subclass, whose fields are its flags.

    The class variables hold the verb's help texts, and say which arguments the verb accepts. Each
    subclass becomes a frozen dataclass, whose constructor takes only keyword arguments.
    """

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    __dataclass_fields__: ClassVar[dict[str, Any]]
    description: ClassVar[str]
    usage: ClassVar[str | None] = None
    epilog: ClassVar[str | None] = None
    # {second word of the command, such as `up` in `lab up`: (class of its flags, its description)}
    verbs: ClassVar[Mapping[str, tuple[type[Any], str]]] = {}
    # The reason why the verb refuses --limit and --exclude; None if the verb accepts them.
    no_selection_reason: ClassVar[str | None] = None
    # True if the operator may write a command after `--`.
    takes_command: ClassVar[bool] = False


_common_option = partial(option, group=_COMMON_TITLE, env=env_default)
_common_switch = partial(switch, group=_COMMON_TITLE, env=is_env_true)
_NO_COLOR = {
    "action": "store_const",
    "const": "never",
    "default": argparse.SUPPRESS,
    "help": "the same as --color never",
}


class CommonFlags(VerbFlags):
    """The flags of all verbs, from the command line or from TFDEPLOY_<FLAG>.

    `after_dashes`: the arguments after `--`; None if there is no `--`.
    """

    inventory: str | None = _common_option(
        "-i", "--inventory", metavar="FILE", help="the inventory file"
    )
    job: str | None = _common_option(
        "-j", "--job", metavar="FILE", help="the job file (default: tfdeploy.yaml)"
    )
    limit: str | None = _common_option(
        "--limit",
        metavar="PATTERN",
        help="only these hosts or roles, such as n1,gpu[03-10],worker,n*",
    )
    exclude: str | None = _common_option(
        "--exclude", metavar="PATTERN", help="without these hosts or roles"
    )
    parallel: int = _common_option(
        "--parallel",
        default=32,
        metavar="N",
        type=positive,
        help="open at most N connections at once",
    )
    json: bool = _common_switch("--json", help="print results as JSON on stdout")
    verbose: bool = _common_switch("-v", "--verbose", help="print more")
    quiet: bool = _common_switch("-q", "--quiet", help="print only what went wrong")
    color: Color = option(
        "--color",
        default="auto",
        env=_default_color,
        group=_COMMON_TITLE,
        more_flags={"--no-color": _NO_COLOR},
        choices=COLORS,
        help="when to use colours (default: auto; NO_COLOR also counts)",
    )
    yes: bool = _common_switch("-y", "--yes", help="answer yes to every question")
    after_dashes: tuple[str, ...] | None = None

    @property
    def selects_hosts(self) -> bool:
        """Return True if --limit or --exclude is set."""
        return self.limit is not None or self.exclude is not None

    @property
    def out(self) -> Terminal:
        """Return the terminal of standard output, which shows colours as --color says."""
        return self._terminal_of(sys.stdout)

    @property
    def err(self) -> Terminal:
        """Return the terminal of standard error, which shows colours as --color says."""
        return self._terminal_of(sys.stderr)

    def _terminal_of(self, stream: TextIO) -> Terminal:
        from tfdeploy.ui.terminal import terminal_of

        return terminal_of(stream, self.color)

    def add_file_flags(self, text: str) -> str:
        """Add the -i and -j of this command line to each tfdeploy command in `text`.

        The operator can then type the commands as they are printed. -i or -j is not added if its
        environment variable has the same value, because the variable also applies to the next
        command.
        """
        candidates = (("-i", self.inventory, "inventory"), ("-j", self.job, "job"))

        def complete(match: re.Match[str]) -> str:
            if match[1] not in VERBS or match[1] in NO_FILES:
                return match[0]
            words = text[match.end() :].partition("`")[0].split()
            added = [match[0]]
            for flag, value, name in candidates:
                if value and value != env_default(name) and flag not in words:
                    added += [flag, shlex.quote(value)]
            return " ".join(added)

        return _COMMAND_IN_TEXT.sub(complete, text)


class OneRunFlags(CommonFlags):
    """The flags of a verb that is about one run.

    `run_prefix`: the run's id, or a unique prefix of the id. If it is None, the newest run of the
    job is meant.
    """

    run_prefix: str | None = argument("RUN", nargs="?", help=RUN_HELP)


bwlimit_option = partial(
    option,
    "--bwlimit",
    metavar="RATE",
    type=rate,
    help="send and receive at most RATE bytes a second per host, such as 500K or 50M (inventory: "
    "bwlimit)",
)
F = TypeVar("F", bound=VerbFlags)


def add_verb(
    subparsers: Any, name: str, record: type[VerbFlags], description: str | None = None
) -> None:
    """Add the parser of a verb. A verb such as `lab` gets one parser for each of its second words.

    `record`: the class of the verb's flags. `parse_args` stores the function `read` in the
    namespace. This function makes an instance of `record`.
    """
    text = description or record.description
    formatter = argparse.RawDescriptionHelpFormatter if "\n" in text else argparse.HelpFormatter
    parser = subparsers.add_parser(
        name,
        help=text,
        description=text,
        usage=record.usage,
        epilog=record.epilog,
        formatter_class=formatter,
    )
    if record.verbs:
        verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        for subverb, (subrecord, subdescription) in record.verbs.items():
            add_verb(verbs, subverb, subrecord, subdescription)
        return
    add_declared_arguments(parser, record, last_group=_COMMON_TITLE)
    parser.set_defaults(read=partial(make_flags, record, parser.prog))


def make_flags(
    record: type[F], prog: str, namespace: argparse.Namespace, after_dashes: Sequence[str] | None
) -> F:
    """Return the flags of a verb as an instance of the class `record`.

    The values come from argparse's `namespace`, and from the arguments after `--`. Raises
    UsageError for arguments that the verb does not accept.
    """
    values: dict[str, Any] = vars(namespace)
    if after_dashes is not None and not record.takes_command:
        raise UsageError(
            f"this verb takes nothing after --: {shlex.join(after_dashes)}",
            where=prog,
            next=f"`{prog} --help`",
        )
    if record.no_selection_reason is not None:
        _refuse_host_selection(record.no_selection_reason, prog, values)
    known_values = {each.name: values[each.name] for each in fields(record) if each.name in values}
    if after_dashes is not None:
        known_values["after_dashes"] = tuple(after_dashes)
    return record(**known_values)


def read_common_flags(argv: Sequence[str]) -> CommonFlags:
    """Return the common flags in `argv`, whatever the verb in it is.

    If the common flags are invalid, return their defaults.
    """
    try:
        return make_flags(CommonFlags, "tfdeploy", common_parser().parse_known_args(argv)[0], None)
    except UsageError:
        return CommonFlags()


def common_parser() -> Parser:
    """Return a parser of the common flags only."""
    parser = Parser(add_help=False)
    add_declared_arguments(parser, CommonFlags)
    return parser


def move_verb_first(argv: list[str]) -> list[str]:
    """Return `argv` with its verb first. Common flags before the verb are moved behind the verb.

    `argv` is returned unchanged if a flag before the verb is unknown.
    """
    if not argv or not argv[0].startswith("-"):
        return argv
    takes_value = {
        flag: action.nargs != 0
        for action in common_parser()._actions
        for flag in action.option_strings
    }
    index = 0
    while index < len(argv) and argv[index].startswith("-"):
        flag, equals, _ = argv[index].partition("=")
        if not flag.startswith("--") and takes_value.get(flag[:2]) and len(argv[index]) > 2:
            # a short flag with its value in the same argument, such as -iFILE
            flag, equals = flag[:2], "="
        if flag not in takes_value:
            return argv
        index += 1 if equals or not takes_value[flag] else 2
    return [*argv[index : index + 1], *argv[:index], *argv[index + 1 :]]


def _refuse_host_selection(reason: str, prog: str, values: dict[str, object]) -> None:
    """Raise UsageError if --limit or --exclude is set, on the command line or in the environment.

    If the verb contacts no host, values in the environment are ignored and raise no error.
    """
    for flag in ("limit", "exclude"):
        value = values.get(flag)
        if value is None:
            continue
        name, command = f"--{flag}", prog
        if value == env_default(flag):
            if prog.split()[1] in NO_FILES:
                continue
            name = f"TFDEPLOY_{flag.upper()}"
            command = f"env -u {name} {prog}"
        raise UsageError(f"{name} is not accepted: {reason}", where=prog, next=f"`{command}`")
