"""Test writing to a folder under file names that come from hosts: no name leads out of the folder.

This holds for any files in the folder, even if they are created during the copy.
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
def here(tmp_path: Path) -> Iterator[SafeFolder]:
    with SafeFolder(tmp_path / "to") as folder:
        yield folder


WAYS: dict[str, Callable[[SafeFolder], object]] = {
    "stat": lambda here: here.stat("a/x"),
    "read": lambda here: here.open("a/x"),
    "write": lambda here: here.open("a/x", os.O_WRONLY | os.O_CREAT),
    "unlink": lambda here: here.unlink("a/x"),
    "link": lambda here: here.symlink("y", "a/y"),
    "folder": lambda here: here.folder("a", "b"),
    "move": lambda here: here.move_from(here.folder("from"), "a/x"),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_way_leads_through_a_link_to_a_folder(here: SafeFolder, outside: Path, way: str) -> None:
    with here.folder("from", "a"):
        (here.path / "from" / "a" / "x").write_text("new")
    (here.path / "a").symlink_to(outside)
    with pytest.raises(Refused, match="a link is in the way"):
        WAYS[way](here)
    assert [each.name for each in outside.iterdir()] == ["x"] and (
        outside / "x"
    ).read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/etc/passwd", "a/../b", "a//b", "a/", "n\0", "\ud800", "x" * 5000]
)
def test_no_name_leads_out(here: SafeFolder, name: str) -> None:
    for use in (here.stat, here.open, here.unlink, here.folder, here.readlink):
        with pytest.raises(Refused, match="leads out"):
            use(name)


def test_neither_a_link_nor_a_fifo_is_opened(here: SafeFolder, outside: Path) -> None:
    (here.path / "link").symlink_to(outside / "x")
    os.mkfifo(here.path / "fifo")
    with pytest.raises(Refused, match="a link is in the way"):
        here.open("link", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with pytest.raises(Refused, match="other than a file"):
        here.open("fifo")


def test_a_folder_that_is_replaced_by_a_link_meanwhile_stays_the_one_that_was_opened(
    here: SafeFolder, outside: Path
) -> None:
    with here.folder("a") as inner:
        (here.path / "a").rename(here.path / "was")
        (here.path / "a").symlink_to(outside)
        os.close(inner.open("new", os.O_WRONLY | os.O_CREAT))
    assert (here.path / "was" / "new").is_file() and not (outside / "new").exists()
