"""Write the manual pages: tfdeploy.1, and one page for each verb, such as tfdeploy-launch.1.

    python scripts/man_pages.py FOLDER

The pages are made from the parsers of the command line. setup.py puts them into the wheel, so they
are not committed. Needs the standard library only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tfdeploy import __version__  # noqa: E402
from tfdeploy.cli.command import make_parser  # noqa: E402
from tfdeploy.cli.verb_help import examples_of, exit_codes_of  # noqa: E402
from tfdeploy.cli.verb_table import VERBS  # noqa: E402
from tfdeploy.errors import EXIT_CODES  # noqa: E402

_ENVIRONMENT = """.SH ENVIRONMENT
Common options are also read from TFDEPLOY_ and the name of the option, such as TFDEPLOY_INVENTORY.
"""


def write_pages(folder: Path) -> list[Path]:
    """Write all pages into `folder`. Return their paths."""
    parser = make_parser()
    verbs = next(_verbs_of(parser))
    see = [f"tfdeploy-{verb}" for verb in verbs.choices]
    pages = {"tfdeploy": make_page(parser, "TensorFlow clusters over plain SSH", see)}
    for verb, verb_parser in verbs.choices.items():
        pages[f"tfdeploy-{verb}"] = make_page(verb_parser, VERBS[verb], ["tfdeploy"])
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.1" for name in pages]
    for path, text in zip(paths, pages.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def make_page(parser: argparse.ArgumentParser, summary: str, see: Sequence[str]) -> str:
    """Return the manual page of a command, written with the macros of man(7). `see` has the pages
    that it refers to."""
    name = parser.prog.replace(" ", "-")
    related = [rf".BR {_escape(each)} (1)" for each in see]
    return "\n".join(
        [
            f'.TH {_escape(name.upper())} 1 "" "tfdeploy {__version__}" "User Commands"',
            ".SH NAME",
            rf"{_escape(name)} \- {_escape(summary)}",
            ".SH SYNOPSIS",
            _format_usage(parser),
            ".SH DESCRIPTION",
            *_format_text(parser.description),
            *_format_groups(parser),
            *_format_text(parser.epilog),
            *_format_exit_codes(parser.prog),
            _ENVIRONMENT.rstrip(),
            *_format_examples(parser.prog),
            ".SH SEE ALSO",
            ",\n".join(related),
            "",
        ]
    )


def _format_groups(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the flags, arguments and verbs of a command, with a heading for each group."""
    for group in parser._action_groups:
        lines = [line for action in group._group_actions for line in _format(parser, action)]
        if lines:
            has_verbs = any(action in _verbs_of(parser) for action in group._group_actions)
            title = "verbs" if has_verbs else str(group.title).removeprefix("positional ")
            yield from (f".SH {_escape(title.upper())}", *lines)


def _format(parser: argparse.ArgumentParser, action: argparse.Action) -> Iterator[str]:
    """Yield the lines for one action of the parser: a flag or an argument with its help, or the
    verbs of the command."""
    formatter = parser._get_formatter()
    if isinstance(action, argparse._SubParsersAction):
        for each in action._choices_actions:
            yield from (".TP", rf"\fB{_escape(each.dest)}\fR", *_format_text(each.help))
            if parser.prog != "tfdeploy":
                yield from _format_inner_verb(action.choices[each.dest])
    elif action.help != argparse.SUPPRESS:
        name = formatter._format_action_invocation(action)
        help_text = formatter._expand_help(action) if action.help else ""
        yield from (".TP", rf"\fB{_escape(name)}\fR", *_format_text(help_text))


def _format_inner_verb(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the usage, flags and arguments of a verb that has no page, such as `lab up`."""
    yield from (".RS", ".PP", _format_usage(parser))
    for action in parser._actions:
        yield from _format(parser, action)
    yield ".RE"


def _format_exit_codes(prog: str) -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for code in exit_codes_of(prog.split()[1]) if " " in prog else EXIT_CODES:
        yield from (".TP", str(code), _escape(EXIT_CODES[code]))


def _format_examples(prog: str) -> Iterator[str]:
    """Yield the examples of a verb. The page of the command `tfdeploy` itself gets no examples."""
    if " " in prog:
        yield ".SH EXAMPLES"
        for command, text in examples_of(prog):
            yield from (".TP", rf"\fB{_escape(command)}\fR", _escape(text.strip()))


def _verbs_of(parser: argparse.ArgumentParser) -> Iterator[argparse._SubParsersAction[Any]]:
    return (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))


def _format_usage(parser: argparse.ArgumentParser) -> str:
    return _escape(" ".join(parser.format_usage().removeprefix("usage:").split()))


def _format_text(text: str | None) -> Iterator[str]:
    """Yield the lines of a text in roff. Lines with columns keep their line breaks."""
    for number, paragraph in enumerate((text or "").strip().split("\n\n")):
        lines = [_escape(line) for line in paragraph.splitlines()]
        has_columns = any("  " in line for line in lines)
        yield from [".PP"] * bool(number)
        yield from (".nf", *lines, ".fi") if has_columns else lines


def _escape(text: str) -> str:
    """Escape a text for roff. A line must not begin with a control character."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
    escaped = escaped.replace("`", r"\(ga").replace("^", r"\(ha").replace("~", r"\(ti")
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write_pages(Path(sys.argv[1]))
