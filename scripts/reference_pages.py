"""Write docs/reference/: all commands with their options, and all keys of the job file and of the
inventory.

    python scripts/reference_pages.py [--check]

The commands come from the flags that the verbs declare. The keys come from
tfdeploy/config/reference.py. With --check, nothing is written, and the exit code is 1 if a page is
not current.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
# Python puts only the script's own folder on its path.
sys.path.insert(0, str(ROOT))

from tfdeploy.cli.flags import CommonFlags, VerbFlags  # noqa: E402
from tfdeploy.cli.verb_table import VERBS  # noqa: E402
from tfdeploy.config.reference import PLACEHOLDERS, reference_rows  # noqa: E402

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import ReferenceRow

FOLDER = ROOT / "docs" / "reference"
RENEW = "python scripts/reference_pages.py"
_WIDTH = 100
_COMMON = frozenset(each.name for each in dataclasses.fields(CommonFlags))
_ALTERNATIVES = "only one of these"

_COMMANDS_INTRO = """
`tfdeploy VERB --help` prints the same. [Commands](../commands.md) says what each verb is for. All
verbs but `lab` also take the [common options](#common-options). A name in capitals stands for a
value.
"""
_COMMON_INTRO = """
Each of these options is also read from the environment, as `TFDEPLOY_` and its name:
`TFDEPLOY_INVENTORY`, `TFDEPLOY_JSON`. They may stand before the verb, too.
"""
_JOB_INTRO = """
`tfdeploy docs` prints the same. `tfdeploy init` writes a job file for the program in a folder, with
every key explained. [Files](../files.md) says which job file is used. Paths are relative to the
file. A key with a dot is inside the key before the dot.
"""
_INVENTORY_INTRO = """
`tfdeploy docs` prints the same. `tfdeploy init` writes an inventory, with every key explained.
[Files](../files.md) says which inventory is used, and [inventories](../inventories.md) which other
formats are read.
"""
_PLACEHOLDERS_INTRO = "In `command` and `env`. `{{` and `}}` stand for braces."


def pages() -> dict[str, str]:
    """Return {name of a file in docs/reference: its content}."""
    rows = reference_rows()
    inventory = [*_keys(rows["inventory"]), *_heading(2, "Keys of a host")]
    inventory += ["Below `hosts` for one host, below `defaults` for all.", ""]
    placeholders = [*_heading(2, "Placeholders"), _PLACEHOLDERS_INTRO, ""]
    placeholders += [_item(f"`{name}`", text) for name, text in PLACEHOLDERS.items()]
    return {
        "commands.md": _page("Every command", _COMMANDS_INTRO, _commands()),
        "job-file.md": _page("Job file", _JOB_INTRO, [*_keys(rows["job"]), *placeholders]),
        "inventory.md": _page(
            "Inventory", _INVENTORY_INTRO, [*inventory, *_keys(rows["host"], level=3)]
        ),
    }


def _page(title: str, intro: str, lines: Iterable[str]) -> str:
    note = f"<!-- {RENEW} writes this page. -->"
    body = "\n".join([f"# {title}", "", note, intro, *lines])
    return re.sub(r"\n{3,}", "\n\n", body).rstrip() + "\n"


def _heading(level: int, title: str) -> list[str]:
    return ["", f"{'#' * level} {title}", ""]


def _commands() -> Iterator[str]:
    for verb in VERBS:
        record = import_module(f"tfdeploy.cli.arguments.{verb}").Flags
        yield from _command(verb, record, record.description)
    yield from _heading(2, "Common options")
    yield _COMMON_INTRO.strip() + "\n"
    yield from _options(CommonFlags)


def _command(name: str, record: type[VerbFlags], description: str, level: int = 2) -> Iterator[str]:
    yield from _heading(level, name)
    if record.verbs:
        yield _wrapped(description)
        for second, (subrecord, text) in record.verbs.items():
            yield from _command(f"{name} {second}", subrecord, _sentence(text), level + 1)
        return
    yield f"    {record.usage or _usage(name, record)}\n"
    yield _wrapped(description)
    if record.epilog:
        yield _wrapped(record.epilog)
    yield from _options(record, without=_COMMON if issubclass(record, CommonFlags) else frozenset())
    if record.no_selection_reason and issubclass(record, CommonFlags):
        text = f"`--limit` and `--exclude` are refused: {record.no_selection_reason}."
        yield _wrapped(text)


def _usage(name: str, record: type[VerbFlags]) -> str:
    """Return the usage line of a command, made from its flags and arguments."""
    words = [f"tfdeploy {name}"]
    for each in _declared(record):
        if not each.metadata["names"]:
            options = each.metadata["options"]
            count = options.get("nargs")
            metavar = options.get("metavar") or each.name.upper()
            words.append(
                {None: metavar, "?": f"[{metavar}]", "+": f"{metavar} [{metavar} ...]"}.get(
                    count, f"[{metavar} ...]"
                )
            )
    return " ".join([*words, "[options]"])


def _declared(record: type[VerbFlags]) -> list[dataclasses.Field[Any]]:
    """Return the fields of a record that declare an option or an argument with a help text."""
    return [
        each
        for each in dataclasses.fields(record)
        if each.metadata and each.metadata["options"].get("help") != argparse.SUPPRESS
    ]


def _options(record: type[VerbFlags], without: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield a list item for each option of a record, in the groups that the command's help has."""
    groups: dict[str, list[str]] = {}
    for each in _declared(record):
        if each.name in without:
            continue
        title = each.metadata["group"] or ""
        items = groups.setdefault(title, [])
        items += _items(each.name, each.metadata)
    for title, items in groups.items():
        if title and record is not CommonFlags:
            title = _ALTERNATIVES if title == "alternatives" else title
            yield f"{_sentence(title).removesuffix('.')}:\n"
        yield from items
        yield ""


def _items(name: str, declared: Mapping[str, Any]) -> Iterator[str]:
    options = declared["options"]
    if text := options.get("help"):
        yield _item(_form(name, declared["names"], options), text)
    for flag, more in declared["more_flags"].items():
        yield _item(_form(name, [flag], more), more["help"])


def _form(name: str, names: Iterable[str], options: Mapping[str, Any]) -> str:
    """Return an option's names and its value as Markdown: `-n`, `--lines N`."""
    takes_value = not str(options.get("action", "")).startswith(("store_", "count"))
    metavar = options.get("metavar") or "|".join(map(str, options.get("choices", ())))
    value = metavar or name.upper()
    flags = list(names)
    if not flags:
        return f"`{value}`"
    last = f"{flags[-1]} {value}" if takes_value else flags[-1]
    return ", ".join(f"`{each}`" for each in [*flags[:-1], last])


def _keys(rows: Iterable[ReferenceRow], level: int = 2) -> Iterator[str]:
    for row in rows:
        yield from _heading(level, row["key"])
        yield _wrapped(_sentence(row["text"]))
        if row["default"]:
            yield _wrapped(f"Default: {row['default']}.")
        yield f"```yaml\n{_inside(row['key'], row['example'])}\n```\n"


def _inside(dotted: str, example: str) -> str:
    """Return the YAML example of a key, indented below the keys that contain it."""
    for outer in reversed(dotted.split(".")[:-1]):
        example = f"{outer}:\n{textwrap.indent(example, '  ')}"
    return example


def _item(form: str, text: str) -> str:
    return _wrapped(f"- {form}: {text}", "  ", end="")


def _wrapped(text: str, indent: str = "", end: str = "\n") -> str:
    """Return the paragraphs of a text as Markdown of at most 100 columns."""
    paragraphs = [
        textwrap.fill(
            _escaped(" ".join(each.split())),
            _WIDTH,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for each in text.split("\n\n")
    ]
    return "\n\n".join(paragraphs) + end


def _escaped(text: str) -> str:
    """Escape what Markdown would read as emphasis, links or HTML, except in code spans."""
    spans = re.split(r"(`[^`]*`)", text)
    return "".join(
        each if each.startswith("`") else re.sub(r"([*_\[\]])", r"\\\1", each).replace("<", "&lt;")
        for each in spans
    )


def _sentence(text: str) -> str:
    """Return a help text with a final period, and with a capital letter at its start, unless the
    text starts with a name."""
    begins_with_name = re.match(r"\w*[.:_/]|\w+,? \(", text.split(" ")[0]) is not None
    start = text if begins_with_name else text[:1].upper() + text[1:]
    return start if start.endswith((".", "?", "!")) else f"{start}."


def main() -> int:
    old = {
        name: path.read_text(encoding="utf-8")
        for name in pages()
        if (path := FOLDER / name).exists()
    }
    if "--check" in sys.argv[1:]:
        stale = [name for name, text in pages().items() if old.get(name) != text]
        print(f"not current: {', '.join(stale)}; type: {RENEW}" if stale else "current")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
