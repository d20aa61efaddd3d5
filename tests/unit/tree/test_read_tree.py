"""Test that a manifest (paths and hashes) can be made of any folder, whatever its file names are.

If a symbolic link leads out of the folder, or a file keeps changing, there is an error that names
the link or the file.
"""

import os
import threading

import pytest

from support.files.code_tree import paths, put
from tfdeploy.errors import ConfigError, Refused
from tfdeploy.tree import read, read_tree

NAMES = (
    "a b",
    "-rf",
    "quote'\"$(x)`",
    "new\nline",
    "tab\t",
    "emoji \N{PARTY POPPER}",
    "back\\slash",
    "[glob]*?",
    "tr ",
)


def test_names_are_unchanged(root):
    for name in NAMES:
        put(root, name)
    with open(os.fsencode(root) + b"/latin-\xe9", "wb"):  # noqa: PTH123 - the name is bytes
        pass
    assert set(paths(root)) == {*NAMES, "latin-\udce9"}


LINKS = {
    "sibling": ("train.py", True),
    "sub/up": ("../train.py", True),
    "folder": ("sub", True),
    "dangling": ("not/there/yet", True),
    "absolute": ("/etc/passwd", False),
    "climbs": ("../outside", False),
    "sub/climbs": ("../../outside", False),
    "out and in again": ("../code/train.py", False),
    "sub/deep/top": ("../..", True),
    "through": ("sub/deep/top/../outside", False),
}


def test_inner_links_are_kept_and_others_reported(root):
    put(root, "train.py")
    put(root.parent, "outside/secret.txt")
    put(root, "sub/deep/a.py")
    (root / "absolute but inside").symlink_to(root / "train.py")
    for path, (target, _) in LINKS.items():
        (root / path).symlink_to(target)
    manifest = read_tree(root)
    kept = {entry.path: entry.target for entry in manifest.entries if entry.kind == "link"}
    assert kept == {path: target for path, (target, stays) in LINKS.items() if stays}
    assert any(warning.startswith("absolute but inside ") for warning in manifest.warnings)
    for path, (_, stays) in LINKS.items():
        assert stays != any(warning.startswith(path + " ") for warning in manifest.warnings), path


def test_release_depends_only_on_content(root):
    put(root, "train.py", "one")
    put(root, "b.py", "two")
    first = read_tree(root).release
    seen = {first}
    for change in (
        lambda: put(root, "train.py", "ONE"),
        lambda: (root / "b.py").chmod(0o755),
        lambda: (root / "link").symlink_to("b.py"),
        lambda: (root / "b.py").rename(root / "c.py"),
    ):
        change()
        release = read_tree(root).release
        assert release not in seen
        seen.add(release)
    (root / "link").unlink()
    (root / "c.py").rename(root / "b.py")
    (root / "b.py").chmod(0o644)
    put(root, "train.py", "one")
    os.utime(root / "train.py", (1, 1))
    assert read_tree(root).release == first


def test_kinds_of_entries(root):
    put(root, "run.sh", "#!/bin/sh\n").chmod(0o755)
    put(root, "a.py", "")
    by_name = {entry.path: entry for entry in read_tree(root).entries}
    assert (by_name["run.sh"].kind, by_name["run.sh"].size) == ("exec", 10)
    assert (by_name["a.py"].kind, by_name["a.py"].sha256[:8]) == ("file", "e3b0c442")


def test_special_files_are_skipped(root):
    put(root, "train.py")
    os.mkfifo(root / "pipe")
    assert paths(root) == ["train.py"]


def test_missing_folder_file_and_empty_folder_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        read_tree(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is not a folder"):
        read_tree(put(tmp_path, "a.py"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(Refused, match="no file that tfdeploy may send") as caught:
        read_tree(tmp_path / "empty")
    assert caught.value.next
    put(tmp_path, "ignored/.gitignore", "*\n")
    with pytest.raises(Refused, match="no file that tfdeploy may send"):
        read_tree(tmp_path / "ignored")


def test_missing_git_is_named(tmp_path, monkeypatch):
    put(tmp_path, "train.py")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="git is not installed") as caught:
        read_tree(tmp_path)
    assert "install the package git" in caught.value.next


def test_file_that_keeps_changing_is_refused(tmp_path, monkeypatch):
    place = put(tmp_path, "log.txt", "x" * 1000)
    real = read._hash_descriptor

    def hash_while_written(descriptor):
        answer = real(descriptor)
        with place.open("a") as file:
            file.write("more")
        return answer

    monkeypatch.setattr(read, "_hash_descriptor", hash_while_written)
    with pytest.raises(Refused, match="keeps changing") as caught:
        read_tree(tmp_path)
    assert str(place) in caught.value.where


def test_file_that_changes_once_is_read_again(tmp_path, monkeypatch):
    place = put(tmp_path, "log.txt", "old")
    real, once = read._hash_descriptor, threading.Event()

    def hash_and_change(descriptor):
        answer = real(descriptor)
        if not once.is_set():
            once.set()
            place.write_text("quite new")
        return answer

    monkeypatch.setattr(read, "_hash_descriptor", hash_and_change)
    assert read_tree(tmp_path).entries[0].size == len("quite new")
