"""How words of the command line and TFDEPLOY_<FLAG> are read, and what is said of a word that
cannot be."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from tfdeploy.errors import UsageError
from tfdeploy.model.text.moments import moment_of
from tfdeploy.model.text.units import bytes_of, rate_of, seconds_of

V = TypeVar("V")

_CLOSE = 0.75  # difflib ratio: that of --mdoe and --mode; --deep and --mode have half of it
_CONSENTS = (
    "--everything",
    "--force",
    "--fresh",
    "--ignore-keep",
    "--now",
    "--overwrite",
    "--renew",
    "--yes",
    "-y",
)
_TAKE_COMMANDS = ("exec", "launch")


class Parser(argparse.ArgumentParser):
    """argparse that raises UsageError: what, where, what to type next, the nearest match for an
    unknown flag."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, where=self.prog, next=f"{self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        name = "/".join(action.option_strings) or str(action.metavar or action.dest)
        raise no_choice(str(value), list(map(str, action.choices)), self.prog, f"{name}: ")

    def unknown(self, words: list[str], after: list[str] | None = None) -> NoReturn:
        """Refuses what argparse did not recognise, naming the nearest flag. `after`: the words
        behind `--`."""
        if self.prog.split()[-1] in _TAKE_COMMANDS and not words[0].startswith("-"):
            line = f"{self.prog} -- {shlex.join(words)}"
            raise UsageError(
                f"a command stands after --: {' '.join(words)}", where=self.prog, next=line
            )
        flag = words[0].split("=")[0]
        near = closest(
            flag,
            [
                flag
                for action in self._actions
                for flag in action.option_strings
                if not is_consent(flag)
            ],
        )
        hint = (
            f"did you mean {near}? {self.prog} --help lists them" if near else f"{self.prog} --help"
        )
        if self.prog.split()[-1] == "launch":
            line = shlex.join([*(after or ("python", "train.py")), *words])
            own = (
                "a flag of the program stands in `command:`, or with its command behind --: "
                f"{self.prog} -- {line}"
            )
            hint = f"{hint}; {own}" if near else own
        raise UsageError(f"unknown argument {' '.join(words)}", where=self.prog, next=hint)


def no_choice(word: str, known: Sequence[str], where: str, what: str = "") -> UsageError:
    """Return the error for a word that is not one of the known ones."""
    near = closest(word, known)
    hint = f"did you mean {near}? " if near else ""
    return UsageError(
        f"{what}there is no {word!r}", where=where, next=f"{hint}one of: {', '.join(known)}"
    )


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the one of `known` that is nearly the same as `word`, or the only one that begins with
    it; else None."""
    names = {each.lstrip("-"): each for each in known}
    bare = word.lstrip("-")
    near = difflib.get_close_matches(bare, names, n=1, cutoff=_CLOSE)
    longer = [name for name in names if len(bare) > 1 and name.startswith(bare)]
    found = near or (longer if len(longer) == 1 else [])
    return names[found[0]] if found else None


def is_consent(flag: str) -> bool:
    """True for a flag that answers a question or overrides a refusal. Such a flag is never
    suggested for a typing error."""
    return flag in _CONSENTS or flag.startswith("--allow-")


def env_default(flag: str) -> str | None:
    """TFDEPLOY_<FLAG>, or None where it is unset or empty."""
    return os.environ.get("TFDEPLOY_" + flag.upper().replace("-", "_")) or None


def env_true(flag: str) -> bool:
    return (env_default(flag) or "0").lower() not in ("0", "false", "no", "off")


def number(what: str, least: int = 0, most: int = sys.maxsize) -> Callable[[str], int]:
    """Return a reader of digits that raises ArgumentTypeError if the text is not `what`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return int(text)

    return read


def _with_reason(read: Callable[[str], V]) -> Callable[[str], V]:
    """Return the reader so that argparse shows the text of its ValueError."""

    def read_or_explain(text: str) -> V:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_or_explain


positive = number("1 or more", 1)
port = number("a port", 1, 65535)
duration = _with_reason(seconds_of)
rate = _with_reason(rate_of)
size = _with_reason(bytes_of)
moment = _with_reason(moment_of)
