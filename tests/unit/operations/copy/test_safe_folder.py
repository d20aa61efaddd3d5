"""Test that files whose names come from a host are never written outside of the given folder.

This must be true whatever the folder contains, such as symbolic links, even links that are created
during the copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tfdeploy.errors import Refused
from tfdeploy.operations.copy.safe_folder import SafeFolder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_text("mine")
    return tmp_path / "outside"


@pytest.fixture
def safe_folder(tmp_path: Path) -> Iterator[SafeFolder]:
    with SafeFolder(tmp_path / "to") as folder:
        yield folder


WAYS: dict[str, Callable[[SafeFolder], object]] = {
    "stat": lambda safe_folder: safe_folder.stat("a/x"),
    "read": lambda safe_folder: safe_folder.open("a/x"),
    "write": lambda safe_folder: safe_folder.open("a/x", os.O_WRONLY | os.O_CREAT),
    "unlink": lambda safe_folder: safe_folder.unlink("a/x"),
    "link": lambda safe_folder: safe_folder.symlink("y", "a/y"),
    "folder": lambda safe_folder: safe_folder.open_subfolder("a", "b"),
    "move": lambda safe_folder: safe_folder.move_from(safe_folder.open_subfolder("from"), "a/x"),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_operation_follows_link_to_folder(
    safe_folder: SafeFolder, outside: Path, way: str
) -> None:
    with safe_folder.open_subfolder("from", "a"):
        (safe_folder.path / "from" / "a" / "x").write_text("new")
    (safe_folder.path / "a").symlink_to(outside)
    with pytest.raises(Refused, match="a link is in the way"):
        WAYS[way](safe_folder)
    assert [entry.name for entry in outside.iterdir()] == ["x"] and (
        outside / "x"
    ).read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/etc/passwd", "a/../b", "a//b", "a/", "n\0", "\ud800", "x" * 5000]
)
def test_no_name_leads_outside(safe_folder: SafeFolder, name: str) -> None:
    for use in (
        safe_folder.stat,
        safe_folder.open,
        safe_folder.unlink,
        safe_folder.open_subfolder,
        safe_folder.readlink,
    ):
        with pytest.raises(Refused, match="leads out"):
            use(name)


def test_links_and_fifos_are_not_opened(safe_folder: SafeFolder, outside: Path) -> None:
    (safe_folder.path / "link").symlink_to(outside / "x")
    os.mkfifo(safe_folder.path / "fifo")
    with pytest.raises(Refused, match="a link is in the way"):
        safe_folder.open("link", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with pytest.raises(Refused, match="is not a file"):
        safe_folder.open("fifo")


def test_opened_folder_stays_same_after_replacement_by_link(
    safe_folder: SafeFolder, outside: Path
) -> None:
    with safe_folder.open_subfolder("a") as inner:
        (safe_folder.path / "a").rename(safe_folder.path / "was")
        (safe_folder.path / "a").symlink_to(outside)
        os.close(inner.open("new", os.O_WRONLY | os.O_CREAT))
    assert (safe_folder.path / "was" / "new").is_file() and not (outside / "new").exists()
