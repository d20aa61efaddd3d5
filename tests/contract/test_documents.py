"""Test that the commands in the documents are valid and that their links have targets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_lines import read_flags
from tfdeploy.config.inventory import load_inventory
from tfdeploy.config.job import load_job

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = sorted(
    [
        page
        for folder in (".", ".github", "docs", "examples", "benchmarks")
        for page in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
    ]
)
README_WORDS = 900
# At most one in ten sentences of the README may have more words than this.
SENTENCE_WORDS = 25

# Lines of tables and code, and lines that are one long word, may be longer than this.
LINE_COLUMNS = 100
# The largest number of words in a cell of a table. A code span counts as one word.
CELL_WORDS = 30
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    .*", re.MULTILINE)
_COMMAND = re.compile(
    r"^ *(?:\$ )?(?:export \w+=\$\()?tfdeploy ((?:-- '[^']*'|[^)|&;\n])*)", re.MULTILINE
)
_CODE_SPAN = re.compile(r"`[^`]*`")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each `tfdeploy` command in the code blocks of a page.

    A line such as `tfdeploy VERB [--flag]` is not a command and is left out.
    """
    blocks = "\n".join(_FENCED.findall(text) + _INDENTED.findall(text)).replace("\\\n", " ")
    for typed in _COMMAND.findall(blocks):
        words = shlex.split(typed, comments=True)
        if (
            "..." not in words
            and words[0] != "VERB"
            and "[-" not in typed
            and "[options]" not in typed
        ):
            yield words


def prose_lines(page: Path) -> list[str]:
    """Return the lines of a page that are not in code blocks."""
    text = page.read_text(encoding="utf-8")
    return _INDENTED.sub("", _FENCED.sub("", text)).splitlines()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_are_not_too_long(page: Path) -> None:
    lines = [line for line in prose_lines(page) if not line.startswith("|") and " " in line.strip()]
    assert [line for line in lines if len(line) > LINE_COLUMNS and "http" not in line] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_table_cells_are_short(page: Path) -> None:
    rows = [_CODE_SPAN.sub("code", line) for line in prose_lines(page) if line.startswith("|")]
    cells = [cell for row in rows for cell in _CELL_BORDER.split(row)]
    assert [cell for cell in cells if len(re.findall(r"\b[\w'.-]+", cell)) > CELL_WORDS] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_is_valid(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for words in commands(page.read_text(encoding="utf-8")):
        try:
            read_flags(words)
        except SystemExit as asked_for_help:
            assert asked_for_help.code == 0


def test_invalid_command_is_noticed() -> None:
    text = "    tfdeploy launch --dry-run    # a comment\n\n```sh\ntfdeploy lunch\n```\n"
    assert list(commands(text)) == [["lunch"], ["launch", "--dry-run"]]
    with pytest.raises(AssertionError, match="no verb lunch"):
        read_flags(["lunch"])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_complete_file_in_page_is_accepted(page: Path, tmp_path: Path) -> None:
    """Test that tfdeploy accepts each complete job file and each complete inventory. A YAML block
    is a complete job file if it has `mode` and `command`, and a complete inventory if it has
    `hosts`."""
    file = tmp_path / "file.yaml"
    for block in _YAML.findall(page.read_text(encoding="utf-8")):
        keys = re.findall(r"^(\w+):", block, re.MULTILINE)
        file.write_text(block)
        if "hosts" in keys:
            load_inventory(file)
        elif {"mode", "command"} <= {*keys}:
            load_job(file, environ={})


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_has_file_and_heading(page: Path) -> None:
    for link in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        path, _, heading = link.partition("#")
        if "://" in link or path.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)}: {link}"
        if heading:
            assert heading in headings(target), f"{name_of(page)}: {link}"


def headings(page: Path) -> set[str]:
    """Return the anchors that GitHub generates for the headings of a page."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_makefile_has_every_target_named_in_page() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for target in re.findall(
            r"(?:^    |`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE
        ):
            assert target in targets, f"{name_of(page)}: make {target}"


def test_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= README_WORDS
    prose = [
        line
        for line in _FENCED.sub("", text).splitlines()
        if not line.startswith(("    ", "|", "#", "!"))
    ]
    sentences = sorted(
        len(sentence.split()) for sentence in re.split(r"(?<=[.:?!])\s+", "\n".join(prose))
    )
    assert sentences[len(sentences) * 9 // 10] <= SENTENCE_WORDS


@pytest.mark.parametrize("page", [README, *sorted((ROOT / "docs").glob("*.md"))], ids=name_of)
def test_documentation_index_names_every_page(page: Path) -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    assert page.name == "README.md" or f"({page.name})" in index
