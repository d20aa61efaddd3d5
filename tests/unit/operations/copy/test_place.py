"""Test how files that came from a host are checked and then moved to their destination.

The files that name the latest checkpoint are moved last, newer files are not overwritten, and no
symbolic link is followed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.answers.files import FoundFile
from tfdeploy.operations.copy.place import PlacedFiles
from tfdeploy.operations.copy.place import put_in_place as place_below
from tfdeploy.operations.copy.safe_folder import SafeFolder


def place_in_folders(staging: Path, destination: Path, *args: Any, **kwargs: Any) -> PlacedFiles:
    with SafeFolder(staging) as source, SafeFolder(destination) as target:
        return place_below(source, target, *args, **kwargs)


def make_staging(root: Path, **texts: str) -> Path:
    for path, text in texts.items():
        file = root / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (1000, 1000))
    return root


def test_files_keep_their_times_and_checkpoint_record_is_moved_last(
    tmp_path: Path,
) -> None:
    staging = make_staging(tmp_path / "s", a__checkpoint="r", a__model="m", b__checkpoint="q")
    placed = place_in_folders(
        staging, tmp_path / "d", ["a/checkpoint", "a/model", "b/checkpoint"], (), {"a/other"}
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
def test_newer_local_file_is_not_overwritten(
    tmp_path: Path, age: int, text: str, kept: bool
) -> None:
    staging = make_staging(tmp_path / "s", x="new")
    target = tmp_path / "d" / "x"
    target.parent.mkdir()
    target.write_text(text)
    os.utime(target, (age, age))
    placed = place_in_folders(staging, tmp_path / "d", ["x"], (), ())
    assert placed.newer_here == (["x"] if kept else [])
    assert target.read_text() == ("mine" if kept else "new")
    if kept:
        place_in_folders(staging, tmp_path / "d", ["x"], (), (), overwrite=True)
        assert target.read_text() == "new"


@pytest.mark.parametrize("way", ["folder", "root", "name"])
def test_nothing_is_written_through_link(tmp_path: Path, way: str) -> None:
    staging, outside = make_staging(tmp_path / "s", a__x="new"), tmp_path / "outside"
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
        place_in_folders(staging, destination, ["a/x"], (), ())
        assert not (destination / "a" / "x").is_symlink()
    else:
        with pytest.raises(Refused, match="link is in the way"):
            place_in_folders(staging, destination, ["a/x"], (), ())
    assert (outside / "a" / "x").read_text() == "mine"


def test_folder_in_place_of_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "d" / "x").mkdir(parents=True)
    with pytest.raises(Refused, match="folder is in the way"):
        place_in_folders(make_staging(tmp_path / "s", x="new"), tmp_path / "d", ["x"], (), ())


def test_links_inside_are_created_and_others_named(tmp_path: Path) -> None:
    links = (
        FoundFile("a/near", 0, 0, "../x"),
        FoundFile("out", 0, 0, "/etc"),
        FoundFile("up", 0, 0, "../y"),
    )
    placed = place_in_folders(
        make_staging(tmp_path / "s", x="new"), tmp_path / "d", ["x"], links, ()
    )
    assert placed.left_there == ["out", "up"]
    assert (tmp_path / "d/a/near").read_text() == "new"
    assert place_in_folders(tmp_path / "s", tmp_path / "d", [], links, ()).files == 0
