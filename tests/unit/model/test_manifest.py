"""Test the warning that a code folder is large: which paths it names, and what it suggests."""

from __future__ import annotations

import pytest
import yaml

from tfdeploy.model.manifest import Manifest, ManifestEntry, warn_of_large_code

MB = 1_000_000


def note_of_sizes_in_mb(**sizes: int) -> str | None:
    return note_of_sizes({path: size * MB for path, size in sizes.items()})


def note_of_sizes(sizes: dict[str, int]) -> str | None:
    entries = tuple(
        ManifestEntry(path=path, kind="file", size=size) for path, size in sorted(sizes.items())
    )
    return warn_of_large_code(Manifest(root="/code", release="r", entries=entries))


def test_fifty_megabytes_are_not_large() -> None:
    assert note_of_sizes_in_mb() is None and note_of_sizes_in_mb(a=50) is None
    assert note_of_sizes({"a": 50 * MB, "b": 1}) is not None


def test_largest_paths_are_named_with_lines_that_exclude_them() -> None:
    text = note_of_sizes(
        {
            "data/train/a": 150 * MB,
            "data/train/b": 51 * MB,
            "model.bin": 11 * MB,
            "train.py": 1000,
            "data/x": MB,
        }
    )
    assert text == (
        "code: 213 MB in files that .gitignore does not exclude: data/train/ (201 MB), "
        "model.bin (11 MB). Every run has its own copy of these files "
        "(with reflinks, the copies share disk space). To send the largest path only once, as "
        "data, write `data: {train: ./data/train/}` in the job file; "
        "to leave it out of the code: echo /data/train/ >> .tfdeployignore"
    )


def test_folder_represents_its_many_files() -> None:
    text = note_of_sizes(
        {f"data/{part}/{number}": MB for part in ("train", "test") for number in range(40)}
    )
    assert text is not None and "data/ (80 MB)." in text and "`data: {data: ./data/}`" in text


def test_small_paths_are_not_named() -> None:
    text = note_of_sizes({"a": 60 * MB, **{f"f{number}": MB for number in range(9)}})
    assert text is not None and ": a (60 MB). Every" in text


@pytest.mark.parametrize(
    ("path", "line", "name"),
    [
        ("my data", "echo '/my\\ data' >> .tfdeployignore", "my_data"),
        ("a*[1]", "echo '/a\\*\\[1\\]' >> .tfdeployignore", "a_1"),
        ("été", "echo '/été' >> .tfdeployignore", "t"),
        ("--", "echo /-- >> .tfdeployignore", "data"),
    ],
)
def test_unusual_names(path: str, line: str, name: str) -> None:
    text = note_of_sizes({path: 60 * MB})
    assert text is not None and text.endswith(line)
    job = yaml.safe_load(text[text.index("`data:") + 1 : text.index("` in the job file")])
    assert job == {"data": {name: f"./{path}"}}
