"""Read one command line and run its verb."""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from tfdeploy.cli.flags import CommonFlags, add_verb, move_verb_first, read_common_flags
from tfdeploy.cli.options import Parser, closest_name, env_default, is_env_true
from tfdeploy.cli.output import print_message
from tfdeploy.cli.verb_table import NO_FILES, OTHER_NAMES, VERBS
from tfdeploy.errors import TfdeployError, UsageError

# The pattern finds a flag that asks for JSON. It is applied to the arguments joined by NUL.
_JSON_FLAG = re.compile(r"(?:\A|\0)(?:--json|--output[=\0]json|-o\0?json)(?:\0|\Z)")


def run_command(argv: list[str]) -> int:
    """Run the verb that `argv` names and return its exit code. Raises TfdeployError."""
    argv = move_verb_first(argv)
    flags = _read_flags(argv)
    if flags is None:
        return 2
    _print_selection_by_environment(argv[0], flags)
    code: int = import_module(f"tfdeploy.cli.verbs.{argv[0]}").run(flags)
    sys.stdout.flush()
    return code


def _print_selection_by_environment(verb: str, flags: CommonFlags) -> None:
    """Print that a variable of the environment selects the hosts, so that nobody wonders why some
    hosts are missing."""
    for name, value in (("limit", flags.limit), ("exclude", flags.exclude)):
        if value and value == env_default(name) and verb not in NO_FILES and not flags.quiet:
            print_message(f"TFDEPLOY_{name.upper()} is set, so this applies: --{name} {value}")


def _read_flags(argv: list[str]) -> CommonFlags | None:
    """Return the flags of the verb, or print the help and return None if `argv` has no verb.

    Raises UsageError.
    """
    parser, verbs = _make_parser_without_verbs()
    verb = argv[0] if argv else ""
    # Importing the flags of one verb is quicker than importing those of all verbs.
    if verb in VERBS:
        _add_flags(verbs, verb)
    else:
        _refuse_unknown_verb(verb, argv[1:])
        for name, text in VERBS.items():
            verbs.add_parser(name, help=text)
    before_dashes, after = _split_at_dashes(argv)
    args, unknown = parser.parse_known_args(before_dashes)
    if unknown:
        verbs.choices.get(verb, parser).refuse_unknown(unknown, before_dashes, after)
    if getattr(args, "read", None):
        flags: CommonFlags = args.read(args, after)
        return flags
    parser.print_help(sys.stderr)
    if argv:
        raise UsageError("no verb given", where="tfdeploy", next="`tfdeploy --help`")
    return None


def make_parser() -> Parser:
    """Return the parser of all verbs."""
    parser, verbs = _make_parser_without_verbs()
    for verb in VERBS:
        _add_flags(verbs, verb)
    for each in verbs._choices_actions:
        each.help = VERBS[each.dest]
    return parser


def _make_parser_without_verbs() -> tuple[Parser, Any]:
    """Return the parser without any verb, and argparse's object to which verbs are added."""
    parser = Parser(
        prog="tfdeploy",
        description="TensorFlow clusters over plain SSH.",
        epilog="tfdeploy VERB --help describes a verb.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    return parser, parser.add_subparsers(metavar="VERB", parser_class=Parser)


def _add_flags(verbs: Any, verb: str) -> None:
    add_verb(verbs, verb, import_module(f"tfdeploy.cli.arguments.{verb}").Flags)


def _refuse_unknown_verb(verb: str, arguments: list[str]) -> None:
    """Raise UsageError if `verb` is neither a verb nor a flag that needs no verb."""
    if verb.startswith("-") and verb not in ("-h", "--help", "--version"):
        what = f"there is no verb before {verb}"
        raise UsageError(what, where="tfdeploy", next=f"write a verb before {verb}")
    if verb and not verb.startswith("-"):
        meant = OTHER_NAMES.get(verb) or closest_name(verb, VERBS)
        if verb == "help" and arguments[:1]:
            meant, arguments = OTHER_NAMES.get(arguments[0], arguments[0]), ["--help"]
        hint = (
            f"did you mean {_format_suggested_command(meant, arguments)}?"
            if meant
            else "`tfdeploy --help`"
        )
        raise UsageError(f"unknown verb {verb!r}", where="tfdeploy", next=hint)


def _format_suggested_command(meant: str, arguments: list[str]) -> str:
    """Return the command line that the operator probably meant, in backquotes.

    `meant`: a verb, perhaps with flags. The command line contains `arguments` if the verb accepts
    them.
    """
    command = meant.split()
    asks_for_help = {"-h", "--help"} & {*arguments}
    given = arguments[:1] and not arguments[0].startswith("-")
    for command_line in (
        [*command, *arguments],
        [*command, "--", *arguments] if given else command,
    ):
        with suppress(UsageError):
            if command[0] in VERBS and (asks_for_help or _read_flags(command_line)):
                return f"`{shlex.join(('tfdeploy', *command_line))}`"
    return f"`tfdeploy {meant if command[0] in VERBS else '--help'}`"


def show_command_error(argv: list[str], error: TfdeployError) -> int:
    """Print the error as text or JSON, as the flags in `argv` say, and return its exit code."""
    # Imported only here, because most command lines end without an error.
    from tfdeploy.cli.project import adapt_advice
    from tfdeploy.ui.errors import show_error

    before_dashes = _split_at_dashes(argv)[0]
    flags = read_common_flags(before_dashes)
    error.next = adapt_advice(flags, error.next) if error.next else None
    as_json = bool(_JSON_FLAG.search("\0".join(before_dashes))) or is_env_true("json")
    show_error(error, as_json=as_json, color=flags.color)
    return error.exit_code


def _split_at_dashes(argv: list[str]) -> tuple[list[str], list[str] | None]:
    """Return (arguments before the first `--`, arguments after it).

    Without a `--`, the second value is None.
    """
    if "--" not in argv:
        return argv, None
    dashes = argv.index("--")
    return argv[:dashes], argv[dashes + 1 :]
