"""Check that the generated sections of docs/agent-protocol.md agree with the code."""

from __future__ import annotations

from protocol_table import PAGE, with_sections


def test_protocol_page_is_current() -> None:
    """If this test fails, run `python scripts/protocol_table.py`."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_sections(page) == page
