"""Check that the package has at most as many tokens as CHANGELOG.md allows. CHANGELOG.md gives the
reason for each new limit.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from weight import tokens_by_folder, tokens_of  # noqa: E402

LINE = re.compile(r"^- ([0-9,]+) tokens: .+", re.MULTILINE)
# The test fails if the number of tokens that CHANGELOG.md allows exceeds the real number by this
# much or more.
UNUSED = 1_000


def read_allowed_tokens(changelog: str) -> int:
    """Return the number of tokens in the first line of the changelog's section "Weight"."""
    section = changelog.partition("\n### Weight\n")[2]
    match = LINE.search(section)
    assert match is not None, 'CHANGELOG.md has no section "### Weight" with "- N tokens: what for"'
    return int(match.group(1).replace(",", ""))


def test_package_does_not_grow_without_reason() -> None:
    weight = tokens_by_folder().total()
    limit = read_allowed_tokens((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    line = f'"- {weight:,} tokens: what for" as the first line of "### Weight" in CHANGELOG.md'
    assert weight <= limit, (
        f"{weight:,} tokens, {weight - limit:,} too many: remove code, or add {line}"
    )
    assert weight > limit - UNUSED, (
        f"{weight:,} tokens, {limit - weight:,} fewer than allowed: add {line}"
    )


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("x = 1\n", 3),
        ("# a comment\nimport os\nfrom os import (\n    path,\n)\n", 0),
        ('"""The module."""\n\ndef f():\n    """Does it."""\n    return 1\n', 7),
        ('class A:\n    "Its docstring."\n    x = "a string"\n', 6),
        ("f'{a + b} and {c!r:>{d}}'\n", 1),
        ("x = f'{f\"{y}\"}' + z\n", 5),
        ("  \n\n", 0),
    ],
)
def test_count_of_tokens(text: str, tokens: int) -> None:
    assert tokens_of(text) == tokens
