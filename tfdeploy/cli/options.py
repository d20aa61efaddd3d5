"""Parse values of the command line and of TFDEPLOY_<FLAG>, and explain invalid values."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

from tfdeploy.errors import UsageError
from tfdeploy.text.units import parse_duration, parse_rate, parse_size

V = TypeVar("V")

# Names with at least this difflib ratio are suggested. The ratio of mdoe and mode is 0.75, and that
# of deep and mode is 0.5.
_MIN_SIMILARITY = 0.75
# Flags that answer a question or override a refusal. Error messages never suggest such a flag for a
# misspelt flag.
_CONSENT_FLAGS = re.compile(
    r"--(everything|force|fresh|ignore-keep|now|overwrite|renew|yes|allow-.*)\Z|-y\Z"
)
# {flag that a user of another tool may type: the flag of tfdeploy to suggest}
_FLAGS_OF_OTHERS = {
    "--background": "--detach",
    "--from-scratch": "--fresh",
    "--hostfile": "-i",
    "--np": "--workers",
    "--num-workers": "--workers",
    "--reset": "--fresh",
    "--restart": "--fresh",
    "-d": "--detach",
    "-np": "--workers",
}
# An unknown argument such as `steps=50` is probably a setting for the program: Hydra takes settings
# without dashes, and Helm takes them after `--set`.
_SETTING = re.compile(r"[A-Za-z_]\w*=")
_VERBS_WITH_COMMAND = ("exec", "launch", "ssh")


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises UsageError, and suggests a flag similar to an unknown one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        formatter = kwargs.get("formatter_class", argparse.HelpFormatter)
        kwargs["formatter_class"] = partial(formatter, width=_help_width())
        super().__init__(*args, **kwargs)

    def format_help(self) -> str:
        # Imported only here, because most command lines ask for no help.
        from tfdeploy.cli.verb_help import describe_verb

        return super().format_help() + describe_verb(self.prog, _help_width())

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, where=self.prog, next=f"`{self.prog} --help`")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        name = "/".join(action.option_strings) or str(action.metavar or action.dest)
        raise unknown_choice_error(
            str(value), list(map(str, action.choices)), self.prog, f"{name}: "
        )

    def refuse_unknown(
        self, unknown_args: list[str], before_dashes: list[str], after_dashes: list[str] | None
    ) -> NoReturn:
        """Raise UsageError for arguments that argparse did not recognise.

        The error names the most similar flag. `before_dashes`, `after_dashes`: all arguments before
        and after `--`.
        """
        verb, listed = self.prog.split()[-1], " ".join(unknown_args)
        settings = [word for word in unknown_args if _SETTING.match(word)]
        program_flags = [f"--{word}" for word in settings] or unknown_args
        if verb in _VERBS_WITH_COMMAND and not listed.startswith("-"):
            known_args = [word for word in before_dashes[1:] if word not in unknown_args]
            command_line = shlex.join([*self.prog.split(), *known_args, "--", *unknown_args])
            raise UsageError(
                f"write -- before the command {listed}", where=self.prog, next=f"`{command_line}`"
            )
        flags = [flag for action in self._actions for flag in action.option_strings]
        suggested = [flag for flag in flags if not _CONSENT_FLAGS.match(flag)]
        flag = unknown_args[0].split("=")[0]
        other_name = _FLAGS_OF_OTHERS.get(flag)
        near_flag = other_name if other_name in flags else closest_name(flag, suggested)
        help_command = f"`{self.prog} --help`"
        hints = [f"did you mean {near_flag}? {help_command} lists all flags"] if near_flag else []
        if verb == "init" and not listed.startswith("-"):
            several = "write several hosts with commas, as in --hosts n1,n2,n3"
            hints = [several, *(hints or [help_command])]
        if verb == "launch" and not other_name:
            command_line = shlex.join([*(after_dashes or ("python", "train.py")), *program_flags])
            hints.append(
                "write a flag of the program into `command:` of the job file, or into the command "
                f"after --: `{self.prog} -- {command_line}`"
            )
        hint = "; ".join(hints) or help_command
        raise UsageError(f"unknown argument {listed}", where=self.prog, next=hint)


def _help_width() -> int:
    """Return the width of help texts, in columns.

    argparse would compute the same width, but by importing shutil, which takes 10 ms.
    """
    try:
        columns = int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size(1).columns
    except (ValueError, OSError):
        columns = 0
    return (columns or 80) - 2


def unknown_choice_error(
    choice: str, known: Sequence[str], where: str, prefix: str = "", further: Iterable[str] = ()
) -> UsageError:
    """Return the error for a choice that is not one of the known ones.

    `further`: more valid choices. They are too many for a list, but one of them may be suggested.
    """
    # Imported only here, because few command lines need a hint.
    from tfdeploy.text.nexts import tfdeploy_term

    near_choice = closest_name(tfdeploy_term(choice), [*known, *further])
    hint = f"did you mean {near_choice}? " if near_choice else ""
    return UsageError(
        f"{prefix}there is no {choice!r}", where=where, next=f"{hint}one of: {', '.join(known)}"
    )


def closest_name(word: str, known: Iterable[str]) -> str | None:
    """Return the name in `known` that is most similar to `word`.

    If no name is similar, but exactly one name begins with `word`, return this name. Return None in
    all other cases.
    """
    # Imported only here, because few command lines need a hint.
    import difflib

    names = {each.lstrip("-"): each for each in known}
    bare_word = word.lstrip("-")
    similar = difflib.get_close_matches(bare_word, names, n=1, cutoff=_MIN_SIMILARITY)
    extensions = [name for name in names if len(bare_word) > 1 and name.startswith(bare_word)]
    matches = similar or (extensions if len(extensions) == 1 else [])
    return names[matches[0]] if matches else None


def env_default(flag: str) -> str | None:
    """Return TFDEPLOY_<FLAG> from the environment, or None if it is unset or empty."""
    return os.environ.get("TFDEPLOY_" + flag.upper().replace("-", "_")) or None


def is_env_true(flag: str) -> bool:
    """Return True if TFDEPLOY_<FLAG> is set to anything but 0, false, no or off."""
    return (env_default(flag) or "0").lower() not in ("0", "false", "no", "off")


def integer_reader(
    description: str, minimum: int = 0, maximum: int = sys.maxsize
) -> Callable[[str], int]:
    """Return a function that parses an integer from `minimum` to `maximum`.

    For any other text, the function raises ArgumentTypeError: "... is not `description`".
    """

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not minimum <= int(text) <= maximum:
            raise argparse.ArgumentTypeError(f"{text!r} is not {description}")
        return int(text)

    return read


def _explain_value_error(read: Callable[[str], V]) -> Callable[[str], V]:
    """Return a function like `read` that raises ArgumentTypeError instead of ValueError.

    argparse prints the text of an ArgumentTypeError, but not that of a ValueError.
    """

    def read_or_explain(text: str) -> V:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_or_explain


positive = integer_reader("1 or more", 1)
port = integer_reader("a port", 1, 65535)
duration = _explain_value_error(parse_duration)
rate = _explain_value_error(parse_rate)
size = _explain_value_error(parse_size)


@_explain_value_error
def moment(text: str) -> float:
    # Imported only here, because few command lines have a time, and `datetime` is slow to import.
    from tfdeploy.text.row_values import parse_moment

    return parse_moment(text)
