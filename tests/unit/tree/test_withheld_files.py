"""Test that files with secrets or private keys are not sent with the code. Such a file is
recognised by its path, or by its inode if it has another name.

If git tracks such a file, or if a data set contains it, the file is not left out silently: tfdeploy
reports an error.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.files.code_tree import git, put
from tfdeploy.errors import ConfigError
from tfdeploy.tree import list_data_set, read_tree
from tfdeploy.tree.withheld_files import WithheldFile, WithheldFiles


@pytest.fixture
def code(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    put(root, "train.py")
    put(root, "token.txt", "canary")
    put(root, "keys/id", "a key")
    return root


def withhold(*paths: Path, is_secret: bool = True) -> WithheldFiles:
    return WithheldFiles.from_paths(
        {str(path): WithheldFile("the secret T", is_secret=is_secret) for path in paths}
    )


def sent(root: Path, files: WithheldFiles) -> list[str]:
    return [entry.path for entry in read_tree(root, withheld_files=files).entries]


def test_withheld_files_are_left_out_of_release_and_named_once(code: Path) -> None:
    tree = read_tree(code, withheld_files=withhold(code / "token.txt", code / "keys/id"))
    assert [entry.path for entry in tree.entries] == ["train.py"]
    assert tree.warnings == ("not sent: keys/id (the secret T), token.txt (the secret T)",)
    (code / "token.txt").unlink()
    (code / "keys/id").unlink()
    assert read_tree(code).release == tree.release


def test_release_without_withheld_file_is_unchanged(code: Path) -> None:
    assert read_tree(code, withheld_files=withhold(Path("/nowhere/token"))) == read_tree(code)


def test_hard_link_and_target_of_link_are_withheld(code: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("canary")
    os.link(outside, code / "copy.txt")
    assert sent(code, withhold(outside)) == ["keys/id", "token.txt", "train.py"]
    os.symlink("token.txt", code / "here")
    assert sent(code, withhold(code / "here")) == ["copy.txt", "here", "keys/id", "train.py"]


def test_linked_folder_hides_no_withheld_file(code: Path, tmp_path: Path) -> None:
    os.symlink(code, tmp_path / "other")
    assert sent(tmp_path / "other", withhold(code / "token.txt")) == ["keys/id", "train.py"]
    assert sent(code, withhold(tmp_path / "other/token.txt")) == ["keys/id", "train.py"]


def test_file_replaced_after_listing_is_withheld_by_path(code: Path) -> None:
    files = withhold(code / "token.txt")
    put(code, "new", "renewed")
    os.rename(code / "new", code / "token.txt")
    assert sent(code, files) == ["keys/id", "train.py"]


@pytest.mark.parametrize("folder", ["", "lib"])
def test_tracked_secret_file_is_refused_also_in_nested_repository(code: Path, folder: str) -> None:
    inner = code / folder
    inner.mkdir(exist_ok=True)
    git(code, "init", "-q")
    git(inner, "init", "-q")
    put(inner, "a[b] c", "canary")
    files = withhold(inner / "a[b] c")
    assert all("a[b]" not in path for path in sent(code, files))
    git(inner, "add", "a[b] c")
    with pytest.raises(ConfigError, match="is the secret T, and git tracks it") as caught:
        read_tree(code, withheld_files=files)
    assert caught.value.exit_code == 2 and caught.value.where == str(inner / "a[b] c")
    assert str(caught.value.next).startswith(f"`git -C {inner} rm --cached 'a[b] c'")
    put(inner, ".tfdeployignore", "a*\n")
    assert all("a[b]" not in path for path in sent(code, files))


def test_tracked_known_hosts_file_is_left_out_without_error(code: Path) -> None:
    git(code, "init", "-q")
    git(code, "add", "token.txt")
    assert sent(code, withhold(code / "token.txt", is_secret=False)) == ["keys/id", "train.py"]


def test_data_set_with_withheld_file_is_refused_with_path(code: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("canary")
    data = tmp_path / "data"
    put(data, "images/1", "pixels")
    assert list_data_set(data, withhold(outside)) == list_data_set(data)
    os.link(outside, data / "images/2")
    for source in (data, data / "images/2"):
        with pytest.raises(
            ConfigError, match="2 is the secret T, but lies in a data set"
        ) as caught:
            list_data_set(source, withhold(outside))
        assert caught.value.where == str(data / "images/2")
    with pytest.raises(ConfigError, match="1 is the secret T"):
        list_data_set(data, withhold(data / "images/1"))
