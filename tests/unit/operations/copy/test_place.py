"""Test how files from a host are moved to their destination, after they have been checked.

Checkpoint records are moved last, newer files are not overwritten, and no symbolic link is
followed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.answers.listing import FoundFile
from tfdeploy.operations.copy.place import Placed
from tfdeploy.operations.copy.place import put_in_place as place_below
from tfdeploy.operations.copy.safe_folder import SafeFolder


def place_in_folders(staging: Path, destination: Path, *what: Any, **how: Any) -> Placed:
    with SafeFolder(staging) as one, SafeFolder(destination) as two:
        return place_below(one, two, *what, **how)


def staged(root: Path, **texts: str) -> Path:
    for path, text in texts.items():
        file = root / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (1000, 1000))
    return root


def test_files_are_moved_with_their_times_and_a_record_waits_for_what_is_beside_it(
    tmp_path: Path,
) -> None:
    here = staged(tmp_path / "s", a__checkpoint="r", a__model="m", b__checkpoint="q")
    placed = place_in_folders(
        here, tmp_path / "d", ["a/checkpoint", "a/model", "b/checkpoint"], (), {"a/other"}
    )
    assert placed.files == 2
    assert sorted(
        p.relative_to(tmp_path / "d").as_posix() for p in (tmp_path / "d").rglob("*") if p.is_file()
    ) == [
        "a/model",
        "b/checkpoint",
    ]
    assert (tmp_path / "d/a/model").stat().st_mtime == 1000


@pytest.mark.parametrize(
    ("age", "text", "kept"), [(2000, "mine", True), (2000, "new", False), (500, "mine", False)]
)
def test_a_file_changed_here_later_is_left_alone(
    tmp_path: Path, age: int, text: str, kept: bool
) -> None:
    here = staged(tmp_path / "s", x="new")
    there = tmp_path / "d" / "x"
    there.parent.mkdir()
    there.write_text(text)
    os.utime(there, (age, age))
    placed = place_in_folders(here, tmp_path / "d", ["x"], (), ())
    assert placed.newer_here == (["x"] if kept else [])
    assert there.read_text() == ("mine" if kept else "new")
    if kept:
        place_in_folders(here, tmp_path / "d", ["x"], (), (), overwrite=True)
        assert there.read_text() == "new"


@pytest.mark.parametrize("way", ["folder", "root", "name"])
def test_nothing_is_written_through_a_link(tmp_path: Path, way: str) -> None:
    here, outside = staged(tmp_path / "s", a__x="new"), tmp_path / "outside"
    (outside / "a").mkdir(parents=True)
    (outside / "a" / "x").write_text("mine")
    destination = tmp_path / "d"
    if way == "root":
        destination.symlink_to(outside)
    else:
        destination.mkdir()
        (destination / "a").mkdir() if way == "name" else (destination / "a").symlink_to(
            outside / "a"
        )
    if way == "name":
        (destination / "a" / "x").symlink_to(outside / "a" / "x")
        place_in_folders(here, destination, ["a/x"], (), ())
        assert not (destination / "a" / "x").is_symlink()
    else:
        with pytest.raises(Refused, match="link is in the way"):
            place_in_folders(here, destination, ["a/x"], (), ())
    assert (outside / "a" / "x").read_text() == "mine"


def test_a_folder_in_the_way_of_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "d" / "x").mkdir(parents=True)
    with pytest.raises(Refused, match="folder is in the way"):
        place_in_folders(staged(tmp_path / "s", x="new"), tmp_path / "d", ["x"], (), ())


def test_links_that_stay_inside_are_made_and_the_others_named(tmp_path: Path) -> None:
    links = (
        FoundFile("a/near", 0, 0, "../x"),
        FoundFile("out", 0, 0, "/etc"),
        FoundFile("up", 0, 0, "../y"),
    )
    placed = place_in_folders(staged(tmp_path / "s", x="new"), tmp_path / "d", ["x"], links, ())
    assert placed.left_there == ["out", "up"]
    assert (tmp_path / "d/a/near").read_text() == "new"
    assert place_in_folders(tmp_path / "s", tmp_path / "d", [], links, ()).files == 0
