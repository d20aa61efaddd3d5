"""A folder becomes a manifest: what git lists, hashed, with what leads out or keeps changing named."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from tfdeploy.errors import ConfigError, Refused
from tfdeploy.tree import read, read_tree

GIT = (
    "git",
    "-c",
    "user.name=t",
    "-c",
    "user.email=t@example.org",
    "-c",
    "protocol.file.allow=always",
    "-c",
    "commit.gpgsign=false",
)


def git(folder, *words):
    subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True)


def put(root, path, text="x"):
    place = Path(root, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def paths(root, **options):
    return [entry.path for entry in read_tree(root, **options).entries]


@pytest.fixture(params=["checkout", "plain folder"])
def root(request, tmp_path):
    """A code folder inside a checkout, or outside any."""
    folder = tmp_path / "code"
    folder.mkdir()
    if request.param == "checkout":
        git(folder, "init", "-q")
    return folder


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def test_gitignore_means_what_git_says(root):
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
    assert paths(root) == [".gitignore", "build/keep.txt", "sub/.gitignore", "sub/only_here.txt", "sub/wanted.log", "train.py"]


def test_a_folder_that_git_excludes_cannot_be_entered_again(root):
    put(root, ".gitignore", "build/\n!build/keep.txt\n")
    put(root, "build/keep.txt")
    assert paths(root) == [".gitignore"]


def test_tfdeployignore_takes_away_tracked_files_too(root):
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


def test_environments_caches_and_git_are_left_out(root):
    put(root, "train.py")
    put(root, "env/pyvenv.cfg")
    put(root, "env/lib/python3/site.py")
    put(root, "tools/conda/conda-meta/history")
    put(root, "tools/conda/bin/python")
    put(root, "pkg/__pycache__/a.pyc")
    put(root, ".mypy_cache/x")
    assert paths(root) == ["train.py"]


def test_excluded_paths_are_whole_folders_or_files(root):
    for path in ("train.py", "data/digits/a.npz", "data/digits2/b.npz", "ckpt/model", "one.bin"):
        put(root, path)
    assert paths(root, exclude=["data/digits", "ckpt/", "one.bin"]) == ["data/digits2/b.npz", "train.py"]


NAMES = ("a b", "-rf", "quote'\"$(x)`", "new\nline", "tab\t", "emoji \N{PARTY POPPER}", "back\\slash", "[glob]*?", "tr ")


def test_names_come_as_they_are(root):
    for name in NAMES:
        put(root, name)
    with open(os.fsencode(root) + b"/latin-\xe9", "wb"):  # noqa: PTH123 - the name is bytes
        pass
    assert set(paths(root)) == {*NAMES, "latin-\udce9"}


def test_deleted_but_tracked_is_left_out(checkout):
    put(checkout, "train.py")
    put(checkout, "gone.py")
    git(checkout, "add", "-A")
    (checkout / "gone.py").unlink()
    assert paths(checkout) == ["train.py"]


def test_a_tracked_folder_that_became_a_link_is_a_link(checkout):
    put(checkout, "real/a.py")
    put(checkout, "old/a.py")
    git(checkout, "add", "-A")
    (checkout / "old/a.py").unlink()
    (checkout / "old").rmdir()
    (checkout / "old").symlink_to("real")
    assert {entry.path: entry.kind for entry in read_tree(checkout).entries} == {"real/a.py": "file", "old": "link"}


def test_a_tracked_file_that_became_a_folder(checkout):
    put(checkout, "thing")
    git(checkout, "add", "-A")
    (checkout / "thing").unlink()
    put(checkout, "thing/inside.py")
    manifest = read_tree(checkout)
    assert [entry.path for entry in manifest.entries] == ["thing/inside.py"]
    assert manifest.warnings == ()


def test_submodules_and_repositories_inside_come_along(tmp_path, checkout):
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
    expected = [".gitmodules", "loose/a.py", "train.py", "vendor/lib/.gitignore", "vendor/lib/lib.py", "vendor/lib/new.py"]
    assert paths(checkout) == expected


def test_an_empty_submodule_is_named(tmp_path, checkout):
    test_submodules_and_repositories_inside_come_along(tmp_path, checkout)
    git(checkout, "submodule", "deinit", "-q", "-f", "vendor/lib")
    manifest = read_tree(checkout)
    assert "vendor/lib/lib.py" not in [entry.path for entry in manifest.entries]
    assert any("vendor/lib" in warning and "submodule update --init" in warning for warning in manifest.warnings)


def test_a_repository_inside_a_plain_folder(tmp_path):
    put(tmp_path, "train.py")
    put(tmp_path, "inner/a.py")
    put(tmp_path, "inner/b.o")
    put(tmp_path, "inner/.gitignore", "*.o\n")
    git(tmp_path / "inner", "init", "-q")
    assert paths(tmp_path) == ["inner/.gitignore", "inner/a.py", "train.py"]


def test_a_folder_of_a_checkout_is_its_own_tree(checkout):
    put(checkout, "outside.py")
    put(checkout, ".gitignore", "*.o\n")
    put(checkout, "job/train.py")
    put(checkout, "job/a.o")
    git(checkout, "add", "-A")
    assert paths(checkout / "job") == ["train.py"]


def test_a_folder_that_its_checkout_ignores(checkout):
    put(checkout, ".gitignore", "*\n")
    put(checkout, "job/train.py")
    assert paths(checkout / "job") == ["train.py"]


def test_a_broken_git_folder_counts_as_none(tmp_path):
    put(tmp_path, ".git", "gitdir: /nowhere/at/all\n")
    put(tmp_path, "train.py")
    assert paths(tmp_path) == ["train.py"]


def test_variables_of_another_repository_do_not_count(tmp_path, checkout, monkeypatch):
    git(tmp_path, "init", "-q", "other")
    put(checkout, "tracked.log")
    git(checkout, "add", "-A")
    put(checkout, ".gitignore", "*.log\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other/.git/index"))
    assert paths(checkout) == [".gitignore", "tracked.log"]


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


def test_links_inside_are_kept_and_others_reported(root):
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


def test_the_release_names_exactly_this_content(root):
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


def test_entries_say_what_they_are(root):
    put(root, "run.sh", "#!/bin/sh\n").chmod(0o755)
    put(root, "a.py", "")
    found = {entry.path: entry for entry in read_tree(root).entries}
    assert (found["run.sh"].kind, found["run.sh"].size) == ("exec", 10)
    assert (found["a.py"].kind, found["a.py"].sha256[:8]) == ("file", "e3b0c442")


def test_special_files_do_not_stop_us(root):
    put(root, "train.py")
    os.mkfifo(root / "pipe")
    assert paths(root) == ["train.py"]


def test_missing_file_and_empty_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        read_tree(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is not a folder"):
        read_tree(put(tmp_path, "a.py"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(Refused, match="no file to send") as caught:
        read_tree(tmp_path / "empty")
    assert caught.value.next
    put(tmp_path, "ignored/.gitignore", "*\n")
    with pytest.raises(Refused, match="no file to send"):
        read_tree(tmp_path / "ignored")


def test_git_missing_is_named(tmp_path, monkeypatch):
    put(tmp_path, "train.py")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="git is not installed") as caught:
        read_tree(tmp_path)
    assert "install git" in caught.value.next


def test_a_file_that_keeps_changing_is_refused(tmp_path, monkeypatch):
    place = put(tmp_path, "log.txt", "x" * 1000)
    real = read._hash

    def hash_while_written(descriptor):
        answer = real(descriptor)
        with place.open("a") as file:
            file.write("more")
        return answer

    monkeypatch.setattr(read, "_hash", hash_while_written)
    with pytest.raises(Refused, match="keeps changing") as caught:
        read_tree(tmp_path)
    assert str(place) in caught.value.where


def test_a_file_that_changes_once_is_read_again(tmp_path, monkeypatch):
    place = put(tmp_path, "log.txt", "old")
    real, once = read._hash, threading.Event()

    def hash_and_change(descriptor):
        answer = real(descriptor)
        if not once.is_set():
            once.set()
            place.write_text("quite new")
        return answer

    monkeypatch.setattr(read, "_hash", hash_and_change)
    assert read_tree(tmp_path).entries[0].size == len("quite new")
