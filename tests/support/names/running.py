"""Run by an interpreter whose PYTHONPATH begins with a tree of tfdeploy: prints the names that its
running code knows, as JSON.

It asks what has stayed where it is since the tag (the parser, errors, events, wire) and otherwise
imports all of the agent, so that it reads the tag's modules as today's.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import itertools
import json
import os
import pkgutil
import sys
import typing
from collections.abc import Iterator
from typing import Any, ClassVar


class Asked(dict[str, str]):
    """The environment; `names`: which of its TFDEPLOY_ names the parsers ask for."""

    names: ClassVar[set[str]] = set()

    def get(self, name: str, default: Any = None) -> Any:
        if name.startswith("TFDEPLOY_"):
            self.names.add(name)
        return super().get(name, default)


class Captured(BaseException):
    """A parser as it is before it parses."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def parser_of(*words: str) -> argparse.ArgumentParser:
    from tfdeploy.cli.main import main

    def capture(parser: argparse.ArgumentParser, *_: Any) -> Any:
        raise Captured(parser)

    kept, argparse.ArgumentParser.parse_known_args = (
        argparse.ArgumentParser.parse_known_args,
        capture,
    )  # type: ignore[method-assign]
    try:
        main(words)
    except Captured as captured:
        return captured.parser
    finally:
        argparse.ArgumentParser.parse_known_args = kept  # type: ignore[method-assign]
    raise AssertionError(f"tfdeploy {words} never parses")


def subverbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = (
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return dict(next(found, {}))


def words_of(parser: argparse.ArgumentParser, at: str) -> Iterator[str]:
    """`launch --mode async`: verb, flag or argument, and each word that it may be."""
    yield at
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        for name in action.option_strings or [f"<{action.metavar or action.dest}>"]:
            yield f"{at} {name}" + ("" if action.nargs in (0, None) else f" ({action.nargs})")
            yield from (f"{at} {name} {choice}" for choice in action.choices or ())
    for name, each in subverbs(parser).items():
        yield from words_of(each, f"{at} {name}")


def command_line() -> list[str]:
    found: set[str] = set()
    for verb in subverbs(parser_of()):
        found.update(words_of(subverbs(parser_of(verb))[verb], verb))
    return sorted(found)


def agent_modules() -> Iterator[Any]:
    import tfdeploy.agent

    for each in pkgutil.walk_packages(tfdeploy.agent.__path__, "tfdeploy.agent."):
        if not each.name.endswith("__main__"):
            yield importlib.import_module(each.name)


def agent_words() -> list[str]:
    """Of the agent's command line, as it says them itself."""
    from tfdeploy.agent.main import main

    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert main([]) == 2
    return sorted(said.getvalue().partition("(")[2].partition(")")[0].split("|"))


def exit_codes() -> dict[str, int]:
    from tfdeploy import errors

    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    found = {name: kind.exit_code for name, kind in kinds.items()}
    codes = (0, 1, 2, 3, 4, 5, 130)
    pairs = itertools.combinations(codes, 2)
    return {
        **found,
        **{f"worst of {one} and {other}": errors.worst([one, other]) for one, other in pairs},
    }


def main() -> None:
    vars(os)["environ"] = Asked(os.environ)
    from tfdeploy.model.events import Kind

    modules = list(agent_modules())
    serving = [each for each in modules if isinstance(vars(each).get("VERBS"), dict)]
    verbs = {verb for each in serving for verb in each.VERBS}
    fenced = {
        verb for each in serving for verb, answer in each.VERBS.items() if "fenced" in vars(answer)
    }
    # as the tag has it
    fenced.update(verb for each in modules for verb in vars(each).get("FENCED", ()))
    records = {
        name: kind
        for each in modules
        for name, kind in vars(each).items()
        if hasattr(kind, "FIELDS")
    }
    found = {
        "command line": command_line(),
        "event kinds": sorted(typing.get_args(Kind)),
        "exit codes": exit_codes(),
        "agent verbs": sorted(verbs | {"ping"}),
        "agent verbs under the lock": sorted(fenced),
        "agent words": agent_words(),
        "records": {name: sorted(set(kind.FIELDS)) for name, kind in sorted(records.items())},
        "fields a record must have": {
            name: sorted(kind.REQUIRED) for name, kind in sorted(records.items())
        },
        "settings of the command line": sorted(Asked.names),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
