"""Parse command lines as tfdeploy does, without running them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from tfdeploy.cli.flags import add_verb
from tfdeploy.cli.options import Parser
from tfdeploy.cli.verb_table import VERBS


def read_flags(words: Sequence[str]) -> object:
    """Return the parsed flags of a verb. `words`: the arguments of tfdeploy, which begin with the
    verb. Raises UsageError.
    """
    verb, own = words[0], words[: words.index("--")] if "--" in words else words
    assert verb in VERBS, f"there is no verb {verb}"
    parser = Parser(prog="tfdeploy")
    flags = import_module(f"tfdeploy.cli.arguments.{verb}").Flags
    add_verb(parser.add_subparsers(parser_class=Parser), verb, flags)
    args = parser.parse_args(own)
    return args.read(args, words[len(own) + 1 :] if len(own) < len(words) else None)
