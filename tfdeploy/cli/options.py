"""How words of the command line and TFDEPLOY_<FLAG> are read, and what is said of a word that cannot be."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, NoReturn

from tfdeploy.errors import UsageError

_CLOSE = 0.75  # difflib ratio: that of --mdoe and --mode; --deep and --mode have half of it
_CONSENTS = ("--everything", "--force", "--fresh", "--ignore-keep", "--now", "--overwrite", "--renew", "--yes", "-y")
_TAKE_COMMANDS = ("exec", "launch")


class Parser(argparse.ArgumentParser):
    """argparse that raises UsageError: what, where, what to type next, the nearest match for an unknown flag."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, where=self.prog, next=f"{self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(each) for each in action.choices]
        name = "/".join(action.option_strings) or str(action.metavar or action.dest)
        near = closest(str(value), known)
        hint = f"did you mean {near}? " if near else ""
        raise UsageError(f"{name}: there is no {value!r}", where=self.prog, next=f"{hint}one of: {', '.join(known)}")

    def unknown(self, words: list[str], after: list[str] | None = None) -> NoReturn:
        """Refuses what argparse did not recognise, naming the nearest flag. `after`: the words behind `--`."""
        if self.prog.split()[-1] in _TAKE_COMMANDS and not words[0].startswith("-"):
            line = f"{self.prog} -- {shlex.join(words)}"
            raise UsageError(f"a command stands after --: {' '.join(words)}", where=self.prog, next=line)
        flag = words[0].split("=")[0]
        near = closest(flag, [flag for action in self._actions for flag in action.option_strings if not is_consent(flag)])
        hint = f"did you mean {near}? {self.prog} --help lists them" if near else f"{self.prog} --help"
        if self.prog.split()[-1] == "launch":
            line = shlex.join([*(after or ("python", "train.py")), *words])
            own = f"a flag of the program stands in `command:`, or with its command behind --: {self.prog} -- {line}"
            hint = f"{hint}; {own}" if near else own
        raise UsageError(f"unknown argument {' '.join(words)}", where=self.prog, next=hint)


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the one of `known` that is nearly the same as `word`, or the only one that begins with it; else None."""
    names = {each.lstrip("-"): each for each in known}
    bare = word.lstrip("-")
    near = difflib.get_close_matches(bare, names, n=1, cutoff=_CLOSE)
    longer = [name for name in names if len(bare) > 1 and name.startswith(bare)]
    found = near or (longer if len(longer) == 1 else [])
    return names[found[0]] if found else None


def is_consent(flag: str) -> bool:
    """True for a flag that answers a question or overrides a refusal. Such a flag is never suggested for a typing error."""
    return flag in _CONSENTS or flag.startswith("--allow-")


def env_default(flag: str) -> str | None:
    """TFDEPLOY_<FLAG>, or None where it is unset or empty."""
    return os.environ.get("TFDEPLOY_" + flag.upper().replace("-", "_")) or None


def env_true(flag: str) -> bool:
    return (env_default(flag) or "0").lower() not in ("0", "false", "no", "off")


def positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 or more")
    return value


def digits(what: str, most: int | None = None) -> Callable[[str], int]:
    """Return a reader of a number without a sign, at most `most`, that raises ArgumentTypeError where it is not `what`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or (most is not None and int(text) > most):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return int(text)

    return read


def port(text: str) -> int:
    """Read a TCP port. Raises ArgumentTypeError."""
    if not digits("a port", (1 << 16) - 1)(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def _reader(module: str, name: str) -> Callable[[str], Any]:
    """Return a reader by that function, of whose ValueError argparse shows the text. Its module is imported at the first use."""

    def read(text: str) -> Any:
        try:
            return getattr(import_module(module), name)(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


duration = _reader("tfdeploy.model.units", "seconds_of")
rate = _reader("tfdeploy.model.units", "rate_of")
size = _reader("tfdeploy.model.units", "bytes_of")
moment = _reader("tfdeploy.model.moments", "moment_of")
