"""Options that verbs share, with their defaults from TFDEPLOY_<FLAG>."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
from collections.abc import Iterable
from typing import Any, NoReturn

from tfdeploy.errors import UsageError

COLORS = ("auto", "always", "never")
NOT_BUILT: dict[str, tuple[str, ...]] = {}  # flags of the contract, by verb
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
        if flag in NOT_BUILT.get(self.prog.split()[-1], ()):
            raise UsageError(f"`{flag}` is not built yet", where=self.prog, next=f"{self.prog} --help lists what is")
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


def _env_color() -> str:
    """TFDEPLOY_COLOR, checked here because argparse does not check defaults."""
    color = env_default("color") or ("never" if env_true("no-color") else "auto")
    if color not in COLORS:
        raise UsageError(f"there is no {color!r}", where="TFDEPLOY_COLOR", next=f"one of: {', '.join(COLORS)}")
    return color


def positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 or more")
    return value


def port(text: str) -> int:
    """Read a TCP port. Raises ArgumentTypeError."""
    if not text.isdigit() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def duration(text: str) -> float:
    """Seconds from 20, 20s, 5m, 1h30m, 2d."""
    from tfdeploy.model.units import seconds_of

    try:
        return seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def moment(text: str) -> float:
    """UTC seconds from 1h30m (ago), a time of RFC 3339, or a date."""
    import time

    from tfdeploy.model.moments import moment_of

    try:
        return moment_of(text, time.time())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def size(text: str) -> int:
    """Bytes from 500, 20GB, 1.5GiB."""
    from tfdeploy.model.units import BYTES

    number = text.rstrip("BKMGTki")
    try:
        value = float(number) * BYTES[text[len(number) :].strip() or "B"]
    except (ValueError, KeyError):
        value = -1.0
    if not 0 <= value <= 1 << 60:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size like 20GB or 500MiB")
    return int(value)


def rate(text: str) -> int:
    """Bytes a second from 500K, 50M, 1G."""
    from tfdeploy.model.units import rate_of

    try:
        return rate_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_bwlimit(parser: argparse.ArgumentParser) -> None:
    what = "at most so many bytes a second to and from each host, such as 500K or 50M (inventory: bwlimit)"
    parser.add_argument("--bwlimit", metavar="RATE", type=rate, help=what)


def add_via(parser: argparse.ArgumentParser) -> None:
    from tfdeploy.model.job import VIAS

    what = "auto: from host to host; rsync: each host from here (job file: via)"
    parser.add_argument("--via", choices=VIAS, default=None, help=what)


def add_allow_secrets(parser: argparse.ArgumentParser) -> None:
    what = "send code although a file of it holds a private key or the value of a secret"
    parser.add_argument("--allow-secrets-in-code", action="store_true", help=what)


def common(parser: argparse.ArgumentParser) -> None:
    """The common flags of the contract: what flags.CommonFlags is read from."""
    group = parser.add_argument_group("common options")
    group.add_argument("-i", "--inventory", metavar="FILE", default=env_default("inventory"), help="which inventory")
    group.add_argument("-j", "--job", metavar="FILE", default=env_default("job"), help="which job file (default tfdeploy.yaml)")
    group.add_argument(
        "--limit",
        metavar="PATTERN",
        default=env_default("limit"),
        help="only these hosts: n1,gpu[03-10],worker,n*; brackets are ranges",
    )
    group.add_argument("--exclude", metavar="PATTERN", default=env_default("exclude"), help="not these hosts")
    group.add_argument(
        "--parallel", metavar="N", type=positive, default=env_default("parallel") or "32", help="connections at once"
    )
    group.add_argument("--json", action="store_true", default=env_true("json"), help="results as JSON on stdout")
    group.add_argument("-v", "--verbose", action="store_true", default=env_true("verbose"), help="say more")
    group.add_argument("-q", "--quiet", action="store_true", default=env_true("quiet"), help="say only what went wrong")
    group.add_argument("--color", choices=COLORS, default=_env_color(), help="colours (and NO_COLOR)")
    group.add_argument(
        "--no-color", dest="color", action="store_const", const="never", default=argparse.SUPPRESS, help="as --color never"
    )
    group.add_argument("-y", "--yes", action="store_true", default=env_true("yes"), help="answer yes to every question")


def verb_first(words: list[str]) -> list[str]:
    """The words with the common flags before the verb moved behind it. Words that begin with anything else are unchanged."""
    known = argparse.ArgumentParser(add_help=False)
    common(known)
    takes_value = {flag: action.nargs != 0 for action in known._actions for flag in action.option_strings}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        flag, equals, _ = words[at].partition("=")
        joined = not flag.startswith("--") and takes_value.get(flag[:2], False) and len(words[at]) > 2  # -iFILE
        if flag not in takes_value and not joined:
            return words
        at += 1 if equals or joined or not takes_value[flag] else 2
    return [*words[at : at + 1], *words[:at], *words[at + 1 :]]
