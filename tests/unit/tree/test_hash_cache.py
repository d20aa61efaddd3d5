"""Test the cache of file hashes: an unchanged file is not read again, a changed file always is."""

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
    """Return a list. If a file's content is read because its hash is not in the cache, the name of
    the file is added to the list.
    """
    seen = []
    real = read.hash_file

    def recording(path):
        seen.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(read, "hash_file", recording)
    return seen


def test_second_call_reads_no_file(tree, tmp_path, hashed):
    first = read_tree(tree, cache=tmp_path / "cache")
    assert len(hashed) == 5
    hashed.clear()
    assert read_tree(tree, cache=tmp_path / "cache") == first
    assert hashed == []
    read_tree(tree)
    assert len(hashed) == 5


def test_change_with_same_size_and_time_is_detected(tree, tmp_path, hashed):
    first = read_tree(tree, cache=tmp_path / "cache")
    hashed.clear()
    (tree / "f3.py").write_text("9")
    os.utime(tree / "f3.py", (LONG_AGO, LONG_AGO))
    assert read_tree(tree, cache=tmp_path / "cache").release != first.release
    assert hashed == ["f3.py"]


def test_recently_changed_file_is_read_again(tree, tmp_path, hashed):
    (tree / "f0.py").write_text("new")
    read_tree(tree, cache=tmp_path / "cache")
    hashed.clear()
    read_tree(tree, cache=tmp_path / "cache")
    assert hashed == ["f0.py"]


@pytest.mark.parametrize("junk", ["", "{", "[]", '{"f0.py": 3}', '{"f0.py": [1, 2]}', "\0"])
def test_corrupt_cache_is_ignored(tree, tmp_path, hashed, junk):
    cache = tmp_path / "cache"
    first = read_tree(tree, cache=cache)
    (file,) = cache.iterdir()
    file.write_text(junk)
    hashed.clear()
    assert read_tree(tree, cache=cache) == first
    assert len(hashed) == 5


def test_unwritable_cache_is_no_error(tree, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert read_tree(tree, cache=tmp_path / "cache").entries


def test_no_temporary_file_remains(tree, tmp_path):
    read_tree(tree, cache=tmp_path / "cache")
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".json"]
