"""The command line as one frozen record per verb, read once from argparse's namespace. No verb sees the namespace.

`CommonFlags` holds the common flags of the contract; a verb's own record adds its own flags to them.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeVar

from tfdeploy.cli.options import Parser, common, env_default
from tfdeploy.cli.verbs import NO_FILES, VERBS
from tfdeploy.errors import UsageError

_COMMAND = re.compile(r"\btfdeploy ([a-z]+)\b(?! --help\b)")


@dataclass(frozen=True, kw_only=True)
class CommonFlags:
    """The common flags, as typed or as TFDEPLOY_<FLAG> has them. `after`: the words behind `--` (None: no `--`)."""

    unbounded: ClassVar[str | None] = None  # why the verb refuses --limit and --exclude; None: it takes them
    takes_words: ClassVar[bool] = False  # whether words may stand behind `--`

    inventory: str | None = None
    job: str | None = None
    limit: str | None = None
    exclude: str | None = None
    parallel: int = 32
    json: bool = False
    verbose: bool = False
    quiet: bool = False
    color: Literal["auto", "always", "never"] = "auto"
    yes: bool = False
    bwlimit: int | None = None  # of verbs that move files
    after: tuple[str, ...] | None = None

    @property
    def bounded(self) -> bool:
        """Whether --limit or --exclude selects hosts."""
        return self.limit is not None or self.exclude is not None

    def typed(self, text: str) -> str:
        """`text` with the -i and -j of this command line added to every tfdeploy command in it, so that it can be typed as it
        stands. Values that the environment gives are not added."""
        given = (("-i", self.inventory, "inventory"), ("-j", self.job, "job"))
        words = [word for flag, value, name in given if value and value != env_default(name) for word in (flag, value)]
        if not words:
            return text
        return _COMMAND.sub(lambda found: f"{found[0]} {shlex.join(words)}" if _reads_files(found[1]) else found[0], text)

    def nexts(self, results: Mapping[str, object]) -> list[str]:
        """What to type next, from the errors among `results` (by host)."""
        from tfdeploy.errors import TfdeployError
        from tfdeploy.model.nexts import fold_nexts

        next_by_host = {host: result.next for host, result in results.items() if isinstance(result, TfdeployError)}
        return [self.typed(text) for text in fold_nexts(next_by_host)]


@dataclass(frozen=True, kw_only=True)
class OfRun(CommonFlags):
    """Flags of a verb about one run. `wanted`: the run's id or a unique prefix."""

    wanted: str | None = None


F = TypeVar("F", bound=CommonFlags)


def finish_parser(parser: argparse.ArgumentParser, record: type[F], run: Callable[[F], int]) -> None:
    """Ends a verb's `add`: adds the common flags, and makes `run` get the command line as one `record`."""
    common(parser)
    set_handler(parser, record, run)


def set_handler(parser: argparse.ArgumentParser, record: type[F], run: Callable[[F], int]) -> None:
    """Makes `run` get the command line as one `record`."""
    parser.set_defaults(run=lambda namespace, after: run(read(record, parser.prog, namespace, after)))


def read(record: type[F], prog: str, namespace: argparse.Namespace, after: Sequence[str] | None) -> F:
    """The verb's record.

    Raises UsageError on a flag or words that the verb does not take, TypeError on a field that no flag fills.
    """
    given: dict[str, Any] = vars(namespace)
    if after is not None and not record.takes_words:
        raise UsageError(f"nothing may stand behind --: {shlex.join(after)}", where=prog, next=f"{prog} --help")
    if record.unbounded is not None:
        _refuse_bounds(record.unbounded, prog, given)
    known = {each.name: given[each.name] for each in fields(record) if each.name in given}
    return record(**{**known, "after": None if after is None else tuple(after)})


def common_flags(words: Sequence[str]) -> CommonFlags:
    """The common flags in a command line of any verb; the defaults where they cannot be read."""
    parser = Parser(add_help=False)
    try:
        common(parser)
        return read(CommonFlags, "tfdeploy", parser.parse_known_args(words)[0], None)
    except UsageError:
        return CommonFlags()


def _refuse_bounds(why: str, prog: str, given: dict[str, object]) -> None:
    for flag in ("limit", "exclude"):
        exported = env_default(flag)
        value = given.get(flag)
        if value is None or (value == exported and prog.split()[1] in NO_FILES):
            continue
        name = f"TFDEPLOY_{flag.upper()}" if value == exported else f"--{flag}"
        raise UsageError(f"{name} is not taken: {why}", where=prog, next=f"env -u {name} {prog}" if value == exported else prog)


def _reads_files(verb: str) -> bool:
    return verb in VERBS and verb not in NO_FILES
