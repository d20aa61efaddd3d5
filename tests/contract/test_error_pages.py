"""Test that docs/error-codes.md has an entry for every error code, and no other entries, and that
docs/troubleshooting.md quotes messages that tfdeploy prints."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import tfdeploy
from support.error_codes import codes_of_exceptions, codes_of_verbs
from tfdeploy import errors

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "error-codes.md"
# cli/main.py exits with this code after any exception that is not a TfdeployError.
BUG = 70
_ENTRY = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
_TABLE = re.compile(r"^\| tfdeploy says .*\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)
_MESSAGE = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def entries(section: str) -> list[str]:
    """Return the codes that have a row in a section of the page."""
    parts = re.split(r"^## (.*)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return _ENTRY.findall(parts[parts.index(section) + 1])


def check(section: str, expected: set[str]) -> None:
    listed = entries(section)
    missing, unknown = sorted(expected - set(listed)), sorted(set(listed) - expected)
    assert not missing, f"write a row for {missing} under '{section}' in docs/error-codes.md"
    assert not unknown, f"delete {unknown} in docs/error-codes.md: nothing sends such a code"
    assert len(listed) == len(set(listed)), f"a code has two rows under '{section}'"


def test_page_has_every_exit_code() -> None:
    kinds = [
        member
        for _, member in inspect.getmembers(errors, inspect.isclass)
        if issubclass(member, errors.TfdeployError)
    ]
    check("Exit codes", {str(kind.exit_code) for kind in kinds} | {str(BUG)})


def test_commands_page_has_same_exit_codes() -> None:
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    table = page[page.index("## Exit codes") :]
    assert {"0", *entries("Exit codes")} == set(re.findall(r"^\| (\d+) \|", table, re.MULTILINE))


def test_page_has_every_error_code_of_hosts() -> None:
    check("Codes of hosts", {*codes_of_verbs(), *codes_of_exceptions()})


def quoted_messages() -> list[str]:
    """Return the first cell of each row of the tables whose heading is "tfdeploy says"."""
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    return [message for table in _TABLE.findall(page) for message in _MESSAGE.findall(table)]


def texts_of_the_program() -> list[str]:
    """Return every string in the source. Of an f-string, return the fixed parts."""
    trees = (
        ast.parse(path.read_text(encoding="utf-8"))
        for path in Path(tfdeploy.__file__).parent.rglob("*.py")
    )
    nodes = (node for tree in trees for node in ast.walk(tree))
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_quoted_messages_occur_in_program() -> None:
    texts, messages = texts_of_the_program(), quoted_messages()
    assert len(messages) > 50
    for message in messages:
        for part in message.split(" ... "):
            assert any(part in text for text in texts), (
                f"tfdeploy no longer says {part!r}: correct that row of docs/troubleshooting.md"
            )
