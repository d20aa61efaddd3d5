"""Test that README.zh.md has the structure of README.md and translates its current text."""

from __future__ import annotations

import re

import pytest

import translation_marks

SECTIONS = list(
    zip(
        translation_marks.sections(translation_marks.ENGLISH),
        translation_marks.sections(translation_marks.CHINESE),
        strict=False,
    )
)
_CODE = re.compile(r"^```[\s\S]*?^```$|(?:^    .+\n)+", re.MULTILINE)
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)
_ITEM = re.compile(r"^- ", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)]+)\)")
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_SPAN = re.compile(r"`[^`\n]+`")
# README.md links to README.zh.md and the reverse. So that the links of both pages can be compared,
# these two count as the same link.
_OTHER = {"README.zh.md": "README.md"}


def heading_of(pair: tuple[str, str]) -> str:
    return pair[0].splitlines()[0]


def test_no_section_has_changed_since_translation() -> None:
    hint = "translate these sections of README.md in README.zh.md, then run "
    assert translation_marks.changed_sections() == [], hint + translation_marks.RENEW


@pytest.mark.parametrize("pair", SECTIONS, ids=heading_of)
def test_section_has_structure_of_original(pair: tuple[str, str]) -> None:
    english, chinese = pair
    for pattern in (_CODE, _HEADING):
        assert pattern.findall(chinese) == pattern.findall(english)
    assert len(_ITEM.findall(chinese)) == len(_ITEM.findall(english))
    assert links(chinese) == links(english)
    assert [row.count("|") for row in _ROW.findall(chinese)] == [
        row.count("|") for row in _ROW.findall(english)
    ]
    assert code_spans(chinese) == code_spans(english)


def links(text: str) -> list[str]:
    """Return the targets of a section's links, in alphabetic order."""
    return sorted(_OTHER.get(target, target) for target in _LINK.findall(text))


def code_spans(text: str) -> list[str]:
    """Return the code spans outside code blocks, in alphabetic order."""
    return sorted(_SPAN.findall(_CODE.sub("", text)))
