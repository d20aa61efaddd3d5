"""The sections of verbs and answers in docs/agent-protocol.md are what the code says today."""

from __future__ import annotations

from protocol_table import PAGE, with_sections


def test_the_page_is_current() -> None:
    """If not: python scripts/protocol_table.py."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_sections(page) == page
