"""Test the HTML pages that a verb writes to a file, such as a report."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tfdeploy.cli.written_page import write_page
from tfdeploy.errors import UsageError


def test_page_is_complete_and_only_user_can_read_it(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write_page(target, "<p>ä</p>", overwrite=False)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.read_text(encoding="utf-8") == "<p>ä</p>"
    assert list(tmp_path.iterdir()) == [target]


def test_existing_file_is_replaced_only_with_permission(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    with pytest.raises(UsageError, match="exists already"):
        write_page(target, "new", overwrite=False)
    assert target.read_text() == "old"
    write_page(target, "new", overwrite=True)
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_page_with_long_name_is_written(tmp_path: Path) -> None:
    write_page(tmp_path / ("x" * 250), "text", overwrite=False)


def test_unwritable_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        write_page(tmp_path / ("x" * 300), "text", overwrite=False)


def test_command_for_missing_folder_can_be_typed(tmp_path: Path) -> None:
    target = tmp_path / "a b" / "report.html"
    with pytest.raises(UsageError) as caught:
        write_page(target, "text", overwrite=False)
    assert caught.value.next == f"`mkdir -p '{target.parent}'`"
