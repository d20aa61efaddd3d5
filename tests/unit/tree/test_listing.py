"""Test which files of a code folder are sent to hosts: all files that git lists, except those that
must stay on this machine.
"""

import hashlib
import os
import subprocess
import sys

import pytest

from support.files.code_tree import git, paths, put
from tfdeploy.errors import Refused
from tfdeploy.tree import read_tree
from tfdeploy.tree.listing import find_ignore_pattern


def test_gitignore_is_read_as_by_git(root):
    put(root, "train.py")
    put(root, ".gitignore", "build/*\n!build/keep.txt\n/only_here.txt\n*.log\n")
    put(root, "build/a.o")
    put(root, "build/keep.txt")
    put(root, "only_here.txt")
    put(root, "sub/only_here.txt")
    put(root, "sub/.gitignore", "nested.txt\n!wanted.log\n")
    put(root, "sub/nested.txt")
    put(root, "sub/wanted.log")
    put(root, "other.log")
    assert paths(root) == [
        ".gitignore",
        "build/keep.txt",
        "sub/.gitignore",
        "sub/only_here.txt",
        "sub/wanted.log",
        "train.py",
    ]


def test_excluded_folder_cannot_be_included_again(root):
    put(root, ".gitignore", "build/\n!build/keep.txt\n")
    put(root, "build/keep.txt")
    assert paths(root) == [".gitignore"]


def test_tfdeployignore_excludes_tracked_files(root):
    put(root, "train.py")
    put(root, "notes/a.md")
    put(root, "notes/b.md")
    put(root, "model.bin")
    if (root / ".git").exists():
        git(root, "add", "-A")
    put(root, ".tfdeployignore", "*.md\n!b.md\n/model.bin\n")
    put(root, "sub/model.bin")
    put(root, "sub/.tfdeployignore", "own.txt\n")
    put(root, "sub/own.txt")
    assert paths(root) == ["notes/b.md", "sub/model.bin", "train.py"]


def test_environments_and_caches_and_git_folder_are_left_out(root):
    put(root, "train.py")
    put(root, "env/pyvenv.cfg")
    put(root, "env/lib/python3/site.py")
    put(root, "tools/conda/conda-meta/history")
    put(root, "tools/conda/bin/python")
    put(root, "pkg/__pycache__/a.pyc")
    put(root, ".mypy_cache/x")
    assert paths(root) == ["train.py"]


def test_output_of_own_process_is_left_out(root):
    """The shell writes the output of tfdeploy to a file of the code, as nohup does."""
    put(root, "train.py")
    code = (
        "from pathlib import Path; from tfdeploy.tree import read_tree; "
        f"print([entry.path for entry in read_tree(Path({str(root)!r})).entries])"
    )
    with (root / "nohup.out").open("w") as output:
        subprocess.run(
            [sys.executable, "-c", code], stdout=output, stderr=subprocess.STDOUT, check=True
        )
    assert (root / "nohup.out").read_text() == "['train.py']\n"


def test_excluded_path_is_whole_folder_or_file(root):
    for path in ("train.py", "data/digits/a.npz", "data/digits2/b.npz", "ckpt/model", "one.bin"):
        put(root, path)
    assert paths(root, exclude=["data/digits", "ckpt/", "one.bin"]) == [
        "data/digits2/b.npz",
        "train.py",
    ]


def test_deleted_tracked_file_is_left_out(checkout):
    put(checkout, "train.py")
    put(checkout, "gone.py")
    git(checkout, "add", "-A")
    (checkout / "gone.py").unlink()
    assert paths(checkout) == ["train.py"]


def test_tracked_folder_replaced_by_link_is_link(checkout):
    put(checkout, "real/a.py")
    put(checkout, "old/a.py")
    git(checkout, "add", "-A")
    (checkout / "old/a.py").unlink()
    (checkout / "old").rmdir()
    (checkout / "old").symlink_to("real")
    assert {entry.path: entry.kind for entry in read_tree(checkout).entries} == {
        "real/a.py": "file",
        "old": "link",
    }


def test_tracked_file_replaced_by_folder(checkout):
    put(checkout, "thing")
    git(checkout, "add", "-A")
    (checkout / "thing").unlink()
    put(checkout, "thing/inside.py")
    manifest = read_tree(checkout)
    assert [entry.path for entry in manifest.entries] == ["thing/inside.py"]
    assert manifest.warnings == ()


def test_file_outside_of_folder_that_git_index_names_is_left_out(tmp_path, checkout):
    put(tmp_path, "private.txt")
    put(checkout, "train.py")
    put(checkout, "zz/private.txt")
    git(checkout, "add", "zz")
    (checkout / "zz/private.txt").unlink()
    index = checkout / ".git/index"
    entries = index.read_bytes()[:-20].replace(b"zz/private.txt", b"../private.txt")
    index.write_bytes(entries + hashlib.sha1(entries).digest())
    assert paths(checkout) == ["train.py"]


def test_command_for_broken_repository_can_be_typed(tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    put(folder, "train.py")
    git(folder, "init", "-q")
    (folder / ".git/index").write_text("x")
    with pytest.raises(Refused) as caught:
        read_tree(folder)
    assert caught.value.next == f"`git -C '{folder}' status`"


def test_submodules_and_nested_repositories_are_included(tmp_path, checkout):
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q")
    put(library, "lib.py")
    put(library, ".gitignore", "*.o\n")
    git(library, "add", "-A")
    git(library, "commit", "-q", "-m", "x")
    put(checkout, "train.py")
    git(checkout, "submodule", "add", "-q", str(library), "vendor/lib")
    put(checkout, "vendor/lib/new.py")
    put(checkout, "vendor/lib/new.o")
    put(checkout, "loose/a.py")
    git(checkout / "loose", "init", "-q")
    expected = [
        ".gitmodules",
        "loose/a.py",
        "train.py",
        "vendor/lib/.gitignore",
        "vendor/lib/lib.py",
        "vendor/lib/new.py",
    ]
    assert paths(checkout) == expected


def test_empty_submodule_is_named(tmp_path, checkout):
    test_submodules_and_nested_repositories_are_included(tmp_path, checkout)
    git(checkout, "submodule", "deinit", "-q", "-f", "vendor/lib")
    manifest = read_tree(checkout)
    assert "vendor/lib/lib.py" not in [entry.path for entry in manifest.entries]
    assert any(
        "vendor/lib" in warning and "submodule update --init" in warning
        for warning in manifest.warnings
    )


def test_repository_inside_plain_folder(tmp_path):
    put(tmp_path, "train.py")
    put(tmp_path, "inner/a.py")
    put(tmp_path, "inner/b.o")
    put(tmp_path, "inner/.gitignore", "*.o\n")
    git(tmp_path / "inner", "init", "-q")
    assert paths(tmp_path) == ["inner/.gitignore", "inner/a.py", "train.py"]


def test_subfolder_of_checkout_is_separate_tree(checkout):
    put(checkout, "outside.py")
    put(checkout, ".gitignore", "*.o\n")
    put(checkout, "job/train.py")
    put(checkout, "job/a.o")
    git(checkout, "add", "-A")
    assert paths(checkout / "job") == ["train.py"]


def test_folder_ignored_by_its_checkout(checkout):
    put(checkout, ".gitignore", "*\n")
    put(checkout, "job/train.py")
    assert paths(checkout / "job") == ["train.py"]


def test_broken_git_folder_is_ignored(tmp_path):
    put(tmp_path, ".git", "gitdir: /nowhere/at/all\n")
    put(tmp_path, "train.py")
    assert paths(tmp_path) == ["train.py"]


def test_git_variables_of_other_repository_are_ignored(tmp_path, checkout, monkeypatch):
    git(tmp_path, "init", "-q", "other")
    put(checkout, "tracked.log")
    git(checkout, "add", "-A")
    put(checkout, ".gitignore", "*.log\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other/.git/index"))
    assert paths(checkout) == [".gitignore", "tracked.log"]


def test_git_fetches_nothing(tmp_path, root, monkeypatch):
    """Test that git never fetches missing objects while files are listed.

    A repository in the code may name a program that git would run to fetch them.
    """
    seen, program = tmp_path / "seen", tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$GIT_NO_LAZY_FETCH" >>{seen}\nPATH=${{PATH#*:}} exec git "$@"\n'
    )
    program.chmod(0o755)
    put(root, "train.py")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert paths(root) == ["train.py"]
    assert set(seen.read_text().split()) == {"1"}


PAGE = "<!doctype html><!-- written by tfdeploy --><html></html>"
TABLE = '"time","seconds","task","host","attempt","step"\r\n'


def test_reports_are_no_code_unless_tracked_by_git(root, tmp_path):
    put(root, "train.py")
    put(root, "page.html", "<!doctype html><html></html>")
    put(root, "sub/kept.html", PAGE)
    if (root / ".git").exists():
        git(root, "add", "-A")
    put(root, "run-1.html", PAGE)
    put(root, "sub/any name", PAGE)
    put(root, "run-1.csv", TABLE)
    kept = ["sub/kept.html"] if (root / ".git").exists() else []
    for path in root.rglob("*"):
        if path.is_file() and ".git" not in path.parts:
            # The cache only has files that have not changed recently.
            os.utime(path, (1, 1))
    releases = set()
    # In the first pass the files are hashed, and in the second their hashes are in the cache.
    for _ in range(2):
        tree = read_tree(root, cache=tmp_path / "cache")
        assert [entry.path for entry in tree.entries] == ["page.html", *kept, "train.py"]
        assert all(len(entry.sha256) == 64 for entry in tree.entries)
        releases.add(tree.release)
    assert len(releases) == 1
    put(root, "run-1.html", "<p>mine</p>")
    assert "run-1.html" in paths(root, cache=tmp_path / "cache")


def test_pattern_that_leaves_a_path_out_is_found(root):
    put(root, ".gitignore", "*.h5\nmodels/\n")
    put(root, "sub/models/line.py")
    put(root, "sub/own.py")
    assert (
        find_ignore_pattern(str(root), ["sub/own.py", "sub/models"]) == "`models/` (.gitignore:2)"
    )
    assert find_ignore_pattern(str(root), ["sub/own.py"]) == ""
    in_checkout = find_ignore_pattern(str(root / "sub"), ["models"])
    assert in_checkout == ("`models/` (../.gitignore:2)" if (root / ".git").exists() else "")
    put(root, ".tfdeployignore", "own.*\n")
    assert find_ignore_pattern(str(root), ["sub/own.py"]) == "`own.*` (.tfdeployignore:1)"
