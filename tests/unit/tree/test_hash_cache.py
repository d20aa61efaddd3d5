"""Test that an unchanged file is not read again, and that a changed file always is."""

import os
from pathlib import Path

import pytest

from tfdeploy.tree import read, read_tree

LONG_AGO = 1_000_000_000


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "code"
    root.mkdir()
    for number in range(5):
        (root / f"f{number}.py").write_text(str(number))
        os.utime(root / f"f{number}.py", (LONG_AGO, LONG_AGO))
    return root


@pytest.fixture
def hashed(monkeypatch):
    """Return a list. When a file is really read, its name is added to this list."""
    seen = []
    real = read.hash_file

    def recording(path):
        seen.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(read, "hash_file", recording)
    return seen


def test_a_second_call_reads_nothing(tree, tmp_path, hashed):
    first = read_tree(tree, cache=tmp_path / "cache")
    assert len(hashed) == 5
    hashed.clear()
    assert read_tree(tree, cache=tmp_path / "cache") == first
    assert hashed == []
    read_tree(tree)
    assert len(hashed) == 5


def test_same_size_and_same_time_is_still_seen(tree, tmp_path, hashed):
    first = read_tree(tree, cache=tmp_path / "cache")
    hashed.clear()
    (tree / "f3.py").write_text("9")
    os.utime(tree / "f3.py", (LONG_AGO, LONG_AGO))
    assert read_tree(tree, cache=tmp_path / "cache").release != first.release
    assert hashed == ["f3.py"]


def test_a_file_changed_just_now_is_not_trusted(tree, tmp_path, hashed):
    (tree / "f0.py").write_text("new")
    read_tree(tree, cache=tmp_path / "cache")
    hashed.clear()
    read_tree(tree, cache=tmp_path / "cache")
    assert hashed == ["f0.py"]


@pytest.mark.parametrize("junk", ["", "{", "[]", '{"f0.py": 3}', '{"f0.py": [1, 2]}', "\0"])
def test_a_corrupt_cache_counts_as_none(tree, tmp_path, hashed, junk):
    cache = tmp_path / "cache"
    first = read_tree(tree, cache=cache)
    (file,) = cache.iterdir()
    file.write_text(junk)
    hashed.clear()
    assert read_tree(tree, cache=cache) == first
    assert len(hashed) == 5


def test_a_cache_that_cannot_be_written_is_no_error(tree, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert read_tree(tree, cache=tmp_path / "cache").entries


def test_nothing_temporary_is_left(tree, tmp_path):
    read_tree(tree, cache=tmp_path / "cache")
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".json"]
